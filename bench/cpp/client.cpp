// SPDX-License-Identifier: Apache-2.0

// Reads one call of Download with gRPC C++ for a while, and prints how many bytes came in a second:
// client PATH SIZE SECONDS.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "echo.grpc.pb.h"

int main(int argc, char *argv[]) {
        if (argc != 4) {
                std::fputs("usage: client PATH SIZE SECONDS\n", stderr);
                return 2;
        }

        using Clock = std::chrono::steady_clock;
        const std::chrono::duration<double> duration(std::stod(argv[3]));
        auto channel = grpc::CreateChannel(std::string("unix:") + argv[1], grpc::InsecureChannelCredentials());
        auto stub = bench::Echo::NewStub(channel);
        bench::DownloadRequest request;
        request.set_size(std::stoul(argv[2]));
        grpc::ClientContext context;
        auto reader = stub->Download(&context, request);
        bench::Message message;
        if (!reader->Read(&message))
                return 1;

        const auto started = Clock::now();
        double bytes = 0;
        std::chrono::duration<double> taken(0);
        while (taken < duration) {
                if (!reader->Read(&message))
                        return 1;
                bytes += message.payload().size();
                taken = Clock::now() - started;
        }
        std::printf("%.0f\n", bytes / taken.count());
        context.TryCancel();
        reader->Finish();
}
