/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: hutch.v1.SystemService. What does not: health and reflection (rpc). */

#include <linux/magic.h>
#include <sched.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "api/limits.h"
#include "api/service.h"
#include "api/times.h"
#include "base/strings.h"
#include "contract/hutch/v1/system.pb-c.h"
#include "host/tools.h"
#include "runtime/runtime.h"

#define INFO_LIMITS_FIELD 4
#define INFO_RUNTIMES_FIELD 5
#define INFO_PROFILES_FIELD 6
#define INFO_HOST_FIELD 8
#define LIMITS_CAPS_FIELD 14
#define UNENFORCED_MAX 32

static const char *const profile_names[] = { "default", "strict", "standard", "permissive" };

static void ping(Request *request) {
        call_reply(request->call, "", 0);
}

static void put_server_limits(WireBuffer *buffer, const ApiLimits *limits) {
        Hutch__V1__ServerLimits message = HUTCH__V1__SERVER_LIMITS__INIT;
        Google__Protobuf__Duration idle_ttl = duration_message(limits->default_idle_ttl);
        Google__Protobuf__Duration max_lifetime = duration_message(limits->max_lifetime);
        Google__Protobuf__Duration retention = duration_message(limits->history_retention);
        size_t begun = wire_begin(buffer, INFO_LIMITS_FIELD);

        message.max_request_bytes = limits->max_request_bytes;
        message.max_response_bytes = limits->max_response_bytes;
        message.run_output_bytes = limits->run_output_bytes;
        message.exec_output_bytes = limits->exec_output_bytes;
        message.max_exec_output_bytes = limits->max_exec_output_bytes;
        message.file_bytes = limits->file_bytes;
        message.max_file_bytes = limits->max_file_bytes;
        message.small_file_bytes = limits->small_file_bytes;
        message.listing_bytes = limits->listing_bytes;
        message.sandboxes_per_caller = limits->sandboxes_per_caller;
        message.sandboxes = limits->sandboxes;
        message.execs_per_sandbox = limits->execs_per_sandbox;
        message.streams_per_caller = limits->streams_per_caller;
        message.default_idle_ttl = &idle_ttl;
        message.max_lifetime = &max_lifetime;
        message.history_retention = &retention;
        message.max_image_bytes = limits->max_image_bytes;
        wire_put_fields(buffer, &message.base);
        put_limits(buffer, LIMITS_CAPS_FIELD, limits->caps.limits);
        wire_end(buffer, begun);
}

static size_t list_len(const char *const *list) {
        size_t n = 0;

        while (list && list[n])
                n++;
        return n;
}

static void put_runtime(WireBuffer *buffer, Runtime *runtime) {
        _cleanup_(error_clear) HutchError err = {};
        Hutch__V1__RuntimeInfo message = HUTCH__V1__RUNTIME_INFO__INIT;
        const RuntimeVerbs *verbs = runtime->verbs;
        Hutch__V1__UnenforcedLimit unenforced[UNENFORCED_MAX], *list[UNENFORCED_MAX];
        char *names[UNENFORCED_MAX];
        size_t n = 0;

        message.name = (char *) verbs->name;
        message.available = verbs->check(runtime, &err) >= 0;
        if (!message.available)
                message.message = (char *) error_message(&err);
        message.n_features = list_len(verbs->features);
        message.features = (char **) verbs->features;
        for (const UnenforcedLimit *one = verbs->not_enforced; one && one->limit && n < UNENFORCED_MAX; one++, n++) {
                unenforced[n] = (Hutch__V1__UnenforcedLimit) HUTCH__V1__UNENFORCED_LIMIT__INIT;
                unenforced[n].limit = names[n] = (char *) one->limit;
                unenforced[n].why = (char *) one->why;
                unenforced[n].fix = (char *) one->fix;
                list[n] = &unenforced[n];
        }
        message.n_not_enforced = message.n_unenforced = n;
        message.not_enforced = names;
        message.unenforced = list;
        wire_put_message(buffer, INFO_RUNTIMES_FIELD, &message.base);
}

static void put_profile(WireBuffer *buffer, const char *name) {
        size_t begun = wire_begin(buffer, INFO_PROFILES_FIELD);

        /* hutch.v1.ProfileInfo: name, defaults, ceilings. */
        wire_put_text(buffer, 1, name);
        put_profile_limits(buffer, 2, 3, name);
        wire_end(buffer, begun);
}

static const char *cgroup_version(void) {
        struct statfs root, unified;

        if (statfs("/sys/fs/cgroup", &root) == 0 && root.f_type == CGROUP2_SUPER_MAGIC)
                return "v2";
        if (statfs("/sys/fs/cgroup/unified", &unified) == 0 && unified.f_type == CGROUP2_SUPER_MAGIC)
                return "hybrid";
        return "v1";
}

/* As container images name them. */
static const char *architecture(const char *machine) {
        if (str_equal(machine, "x86_64"))
                return "amd64";
        if (str_equal(machine, "aarch64"))
                return "arm64";
        return machine;
}

static void put_host(WireBuffer *buffer) {
        Hutch__V1__HostInfo message = HUTCH__V1__HOST_INFO__INIT;
        struct utsname name = {};
        cpu_set_t cpus;

        CPU_ZERO(&cpus);
        (void) uname(&name);
        (void) sched_getaffinity(0, sizeof(cpus), &cpus);
        message.kernel = name.release;
        message.architecture = (char *) architecture(name.machine);
        message.cpus = (uint32_t) CPU_COUNT(&cpus);
        message.memory_bytes = (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);
        message.cgroups = (char *) cgroup_version();
        message.rootless = geteuid() != 0;
        wire_put_message(buffer, INFO_HOST_FIELD, &message.base);
}

static void put_tools(WireBuffer *buffer, const SourceRules *sources) {
        static const SourceRules nothing = {};
        Hutch__V1__GetInfoResponse message = HUTCH__V1__GET_INFO_RESPONSE__INIT;

        message.tools = tool_names(sources ? sources : &nothing, &message.n_tools);
        wire_put_fields(buffer, &message.base);
        for (size_t i = 0; i < message.n_tools; i++)
                free(message.tools[i]);
        free(message.tools);
}

static void get_info(Request *request) {
        _cleanup_(wire_buffer_clear) WireBuffer buffer = {};
        Hutch__V1__GetInfoResponse message = HUTCH__V1__GET_INFO_RESPONSE__INIT;
        Google__Protobuf__Timestamp start_time;
        ControlCounts counts;
        Api *api = request->api;

        counts = control_counts(api->options.control);
        start_time = timestamp_message(api->start_time);
        message.version = (char *) api->options.version;
        message.instance_id = (char *) control_instance_id(api->options.control);
        message.start_time = &start_time;
        message.sandboxes = counts.sandboxes;
        message.active_execs = counts.active_execs;
        message.caller = (char *) request->caller->name;
        message.caller_is_admin = request->caller->admin;
        wire_put_fields(&buffer, &message.base);
        put_tools(&buffer, api->options.sources);
        put_server_limits(&buffer, &api->limits);
        for (Runtime *const *runtime = control_runtimes(api->options.control); *runtime; runtime++)
                put_runtime(&buffer, *runtime);
        for (size_t i = 0; i < sizeof(profile_names) / sizeof(profile_names[0]); i++)
                put_profile(&buffer, profile_names[i]);
        put_host(&buffer);
        request_reply(request, &buffer);
}

MethodList system_service_methods(void) {
        static const ApiMethod methods[] = {
                { .path = "/hutch.v1.SystemService/Ping",
                  .request = &hutch__v1__ping_request__descriptor,
                  .handle = ping },
                { .path = "/hutch.v1.SystemService/GetInfo",
                  .request = &hutch__v1__get_info_request__descriptor,
                  .handle = get_info },
        };

        return (MethodList){ methods, sizeof(methods) / sizeof(methods[0]) };
}
