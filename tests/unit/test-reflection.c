/* SPDX-License-Identifier: Apache-2.0 */

#include "rpc/reflection.h"

#include <string.h>

#include "contract/grpc/reflection/v1/reflection.pb-c.h"
#include "contract/hutch/files.h"
#include "rpc/core/method-table.h"

#include "fail-alloc.h"
#include "session-pair.h"
#include "test.h"

#define INFO "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define INFO_ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
#define REQUEST(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define RESPONSE(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;

static const uint8_t a_bytes[] = { 'A' }, b_bytes[] = { 'B' }, c_bytes[] = { 'C' }, d_bytes[] = { 'D' };
/* d imports b and c, which both import a. */
static const ReflectionFile files[] = {
        { .name = "a.proto", .bytes = a_bytes, .len = 1, .symbols = "t.A\0t.A.field\0", .imports = "" },
        { .name = "b.proto", .bytes = b_bytes, .len = 1, .symbols = "t.B\0", .imports = "a.proto\0" },
        { .name = "c.proto", .bytes = c_bytes, .len = 1, .symbols = "", .imports = "a.proto\0" },
        { .name = "d.proto", .bytes = d_bytes, .len = 1, .symbols = "t.D\0", .imports = "b.proto\0c.proto\0" },
};

/* A server with two services beside reflection's own, and a connection to it with a call. */
typedef struct Fixture {
        MethodTable *table;
        Reflection *reflection;
        SessionPair pair;
        PairCall call;
        Response *response; /* the latest */
} Fixture;

static const Method methods[] = { { .path = "/t.Zoo/Feed" }, { .path = "/t.Zo/Pet" }, { .path = "/t.Zoo/Look" } };

static Fixture *fixture_new(const char *path) {
        Fixture *fixture = new0(Fixture, 1);

        fixture->table = method_table_new();
        assert_non_null(fixture->table);
        assert_int_equal(method_table_add(fixture->table, methods, sizeof(methods) / sizeof(*methods)), 0);
        fixture->reflection = reflection_new(fixture->table, files, sizeof(files) / sizeof(*files));
        assert_non_null(fixture->reflection);
        assert_int_equal(reflection_add_methods(fixture->reflection, fixture->table), 0);
        session_pair_init(&fixture->pair, fixture->table);
        if (path)
                pair_call_start(&fixture->pair, &fixture->call, path);
        return fixture;
}

static Fixture *fixture_free(Fixture *fixture) {
        session_pair_clear(&fixture->pair);
        pair_call_clear(&fixture->call);
        if (fixture->response)
                grpc__reflection__v1__server_reflection_response__free_unpacked(fixture->response, NULL);
        reflection_free(fixture->reflection);
        method_table_free(fixture->table);
        free(fixture);
        return NULL;
}
DEFINE_CLEANUP(Fixture *, fixture_free);

/* Asks for what @kind and @name say, within the call. Returns the answer. */
static const Response *ask(Fixture *fixture, int kind, const char *name) {
        Request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
        size_t before = fixture->call.n_messages;

        request.host = (char *) "here";
        request.message_request_case = (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase) kind;
        request.file_by_filename = (char *) name; /* they share their place */
        pair_call_send(&fixture->pair, &fixture->call, &request.base);
        assert_int_equal(fixture->call.n_messages, before + 1);

        if (fixture->response)
                grpc__reflection__v1__server_reflection_response__free_unpacked(fixture->response, NULL);
        fixture->response = grpc__reflection__v1__server_reflection_response__unpack(NULL, fixture->call.len,
                                                                                     fixture->call.message);
        assert_non_null(fixture->response);
        assert_string_equal(fixture->response->valid_host, "here");
        assert_int_equal(fixture->response->original_request->message_request_case, kind);
        return fixture->response;
}

/* The files of the answer, one letter each. */
static void assert_files(const Response *response, const char *expected) {
        char letters[8] = "";

        assert_int_equal(response->message_response_case, RESPONSE(FILE_DESCRIPTOR_RESPONSE));
        for (size_t i = 0; i < response->file_descriptor_response->n_file_descriptor_proto; i++) {
                assert_int_equal(response->file_descriptor_response->file_descriptor_proto[i].len, 1);
                letters[i] = (char) *response->file_descriptor_response->file_descriptor_proto[i].data;
        }
        assert_string_equal(letters, expected);
}

static void assert_error(const Response *response, StatusCode code) {
        assert_int_equal(response->message_response_case, RESPONSE(ERROR_RESPONSE));
        assert_int_equal(response->error_response->error_code, code);
        assert_true(*response->error_response->error_message);
}

static void services_are_listed_once_and_in_order(void **state) {
        static const char *const paths[] = { INFO, INFO_ALPHA };
        static const char *const expected[] = { "grpc.reflection.v1.ServerReflection",
                                                "grpc.reflection.v1alpha.ServerReflection", "t.Zo", "t.Zoo" };

        for (size_t i = 0; i < 2; i++) {
                _cleanup_(fixture_freep) Fixture *fixture = fixture_new(paths[i]);
                const Response *response = ask(fixture, REQUEST(LIST_SERVICES), "");

                assert_int_equal(response->message_response_case, RESPONSE(LIST_SERVICES_RESPONSE));
                assert_int_equal(response->list_services_response->n_service, 4);
                for (size_t j = 0; j < 4; j++)
                        assert_string_equal(response->list_services_response->service[j]->name, expected[j]);
        }
}

static void a_file_comes_with_all_that_it_imports(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(INFO);

        assert_files(ask(fixture, REQUEST(FILE_BY_FILENAME), "d.proto"), "DCBA");
}

static void imports_are_sent_once_in_a_call(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(INFO);

        assert_files(ask(fixture, REQUEST(FILE_BY_FILENAME), "b.proto"), "BA");
        assert_files(ask(fixture, REQUEST(FILE_BY_FILENAME), "d.proto"), "DC");
        assert_files(ask(fixture, REQUEST(FILE_BY_FILENAME), "a.proto"), "A"); /* asked for by name: sent again */
}

static void symbols_are_found(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(INFO_ALPHA);

        assert_files(ask(fixture, REQUEST(FILE_CONTAINING_SYMBOL), "t.A.field"), "A");
        assert_files(ask(fixture, REQUEST(FILE_CONTAINING_SYMBOL), "t.B"), "B");
}

static void what_is_not_there_is_not_found(void **state) {
        static const char *const names[] = { "", "t", "t.", "t.A.fiel", "t.A.field.x", ".t.A", "a.proto", "T.A" };
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(INFO);

        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
                assert_error(ask(fixture, REQUEST(FILE_CONTAINING_SYMBOL), names[i]), STATUS_NOT_FOUND);
        assert_error(ask(fixture, REQUEST(FILE_BY_FILENAME), "e.proto"), STATUS_NOT_FOUND);
        assert_error(ask(fixture, REQUEST(FILE_BY_FILENAME), ""), STATUS_NOT_FOUND);
        assert_error(ask(fixture, REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE), "t.A"), STATUS_NOT_FOUND);
        assert_error(ask(fixture, REQUEST(_NOT_SET), NULL), STATUS_UNIMPLEMENTED);
        assert_non_null(fixture->call.call);
}

static void the_call_ends_when_the_client_has_no_more_questions(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(INFO);

        (void) ask(fixture, REQUEST(LIST_SERVICES), "");
        pair_call_end(&fixture->pair, &fixture->call);
        assert_null(fixture->call.call);
        assert_int_equal(fixture->call.code, STATUS_OK);
}

static void a_malformed_question_fails_the_call(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(INFO);

        pair_call_send_bytes(&fixture->pair, &fixture->call, "\x1a\x05x", 3);
        assert_null(fixture->call.call);
        assert_int_equal(fixture->call.code, STATUS_INTERNAL);
}

static void a_client_that_asks_and_does_not_read_costs_no_memory(void **state) {
        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(NULL);
        Request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
        char host[1000] = "";
        size_t n = 6000;

        memset(host, 'x', sizeof(host) - 1);
        request.host = host;
        request.message_request_case = REQUEST(LIST_SERVICES);
        fixture->call.pauses = true;
        pair_call_start(&fixture->pair, &fixture->call, INFO);
        for (size_t i = 0; i < n; i++)
                pair_call_send(&fixture->pair, &fixture->call, &request.base);
        assert_non_null(fixture->call.call);
        assert_false(client_call_is_writable(fixture->call.call)); /* the server has stopped reading */

        fixture->call.pauses = false;
        client_call_read(fixture->call.call);
        pair_call_end(&fixture->pair, &fixture->call);
        assert_int_equal(fixture->call.n_messages, n);
        assert_int_equal(fixture->call.code, STATUS_OK);
}

static void memory_may_run_out_anywhere(void **state) {
        static const int kinds[] = { REQUEST(LIST_SERVICES), REQUEST(FILE_BY_FILENAME) };

        for (size_t i = 0; i < 2; i++) {
                bool goes_on = true;

                for (size_t n = 0; goes_on; n++) {
                        _cleanup_(fixture_freep) Fixture *fixture = fixture_new(NULL);
                        Request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;

                        request.message_request_case =
                                (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase) kinds[i];
                        request.file_by_filename = (char *) "d.proto";
                        fail_alloc_after(n);
                        pair_call_start(&fixture->pair, &fixture->call, INFO);
                        pair_call_send(&fixture->pair, &fixture->call, &request.base);
                        pair_call_end(&fixture->pair, &fixture->call);
                        goes_on = fail_alloc_happened();
                        fail_alloc_off();
                        if (!goes_on)
                                assert_int_equal(fixture->call.n_messages, 1);
                }
        }
}

static bool is_file(const char *name, size_t before) {
        for (size_t i = 0; i < before; i++)
                if (strcmp(contract_files[i].name, name) == 0)
                        return true;

        return false;
}

static void files_of_the_contract_come_after_those_they_import(void **state) {
        for (size_t i = 0; i < contract_files_len; i++)
                for (const char *name = contract_files[i].imports; *name; name += strlen(name) + 1)
                        assert_true(is_file(name, i));
        assert_true(is_file("hutch/v1/sandbox.proto", contract_files_len));
        assert_true(is_file("google/rpc/error_details.proto", contract_files_len));
        assert_false(is_file("hutch/keeper/v1/keeper.proto", contract_files_len));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(services_are_listed_once_and_in_order),
                cmocka_unit_test(a_file_comes_with_all_that_it_imports),
                cmocka_unit_test(imports_are_sent_once_in_a_call),
                cmocka_unit_test(symbols_are_found),
                cmocka_unit_test(what_is_not_there_is_not_found),
                cmocka_unit_test(the_call_ends_when_the_client_has_no_more_questions),
                cmocka_unit_test(a_malformed_question_fails_the_call),
                cmocka_unit_test(a_client_that_asks_and_does_not_read_costs_no_memory),
                cmocka_unit_test(memory_may_run_out_anywhere),
                cmocka_unit_test(files_of_the_contract_come_after_those_they_import),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
