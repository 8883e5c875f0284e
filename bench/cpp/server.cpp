// SPDX-License-Identifier: Apache-2.0

// The server of echo.proto on gRPC C++ and its callback API: server PORT PATH.

#include <grpcpp/grpcpp.h>

#include <iostream>
#include <string>

#include "echo.grpc.pb.h"

namespace {

class Download : public grpc::ServerWriteReactor<bench::Message> {
      public:
        explicit Download(size_t size) {
                message_.set_payload(std::string(size, '\0'));
                StartWrite(&message_);
        }
        void OnWriteDone(bool ok) override {
                if (ok)
                        StartWrite(&message_);
                else
                        Finish(grpc::Status::CANCELLED);
        }
        void OnDone() override {
                delete this;
        }

      private:
        bench::Message message_;
};

class Hold : public grpc::ServerBidiReactor<bench::Message, bench::Message> {
      public:
        Hold() {
                StartRead(&message_);
        }
        void OnReadDone(bool ok) override {
                if (ok)
                        StartRead(&message_);
                else
                        Finish(grpc::Status::OK);
        }
        void OnDone() override {
                delete this;
        }

      private:
        bench::Message message_;
};

class Echo : public bench::Echo::CallbackService {
        grpc::ServerUnaryReactor *Unary(grpc::CallbackServerContext *context, const bench::Message *request,
                                        bench::Message *response) override {
                response->set_payload(request->payload());
                auto *reactor = context->DefaultReactor();
                reactor->Finish(grpc::Status::OK);
                return reactor;
        }
        grpc::ServerWriteReactor<bench::Message> *Download(grpc::CallbackServerContext *,
                                                           const bench::DownloadRequest *request) override {
                return new ::Download(request->size());
        }
        grpc::ServerBidiReactor<bench::Message, bench::Message> *Hold(grpc::CallbackServerContext *) override {
                return new ::Hold();
        }
};

} // namespace

int main(int argc, char *argv[]) {
        if (argc != 3) {
                std::cerr << "usage: server PORT PATH\n";
                return 2;
        }

        Echo echo;
        grpc::ServerBuilder builder;
        builder.AddListeningPort(std::string("127.0.0.1:") + argv[1], grpc::InsecureServerCredentials());
        builder.AddListeningPort(std::string("unix:") + argv[2], grpc::InsecureServerCredentials());
        builder.RegisterService(&echo);
        auto server = builder.BuildAndStart();
        if (!server)
                return 1;
        server->Wait();
}
