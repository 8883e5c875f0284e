/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: listing, comparing, showing, moving, removing and watching files of a sandbox. What does not:
 * copying them (copy.c). */

#include "cli/file-commands.h"

#include <errno.h>
#include <hutch/hutch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/strings.h"
#include "cli/connection.h"
#include "cli/output.h"
#include "cli/place.h"
#include "cli/report.h"
#include "pbtext/pbtext.h"

#define DEPTH_MAX 64 /* of a listing */

DEFINE_CLEANUP(HutchFile *, hutch_file_free);
DEFINE_CLEANUP(HutchDownload *, hutch_download_free);
DEFINE_CLEANUP(HutchFileWatch *, hutch_file_watch_free);

static ProtobufCMessage *message_of(const HutchFile *file) {
        return contract_decode("FileInfo", file->encoded, file->encoded_len);
}

/* "-rwxr-xr-x", as ls has it. */
static void mode_format(const HutchFile *file, char ret_text[static 11]) {
        static const char types[] = "?-dlpscb", letters[] = "rwxrwxrwx";
        unsigned type = (unsigned) file->type;

        ret_text[0] = types[type < sizeof(types) - 1 ? type : 0];
        for (unsigned i = 0; i < 9; i++)
                ret_text[1 + i] = file->mode & (0400U >> i) ? letters[i] : '-';
        if (file->mode & 04000)
                ret_text[3] = file->mode & 0100 ? 's' : 'S';
        if (file->mode & 02000)
                ret_text[6] = file->mode & 0010 ? 's' : 'S';
        if (file->mode & 01000)
                ret_text[9] = file->mode & 0001 ? 't' : 'T';
        ret_text[10] = '\0';
}

#define TIME_SIZE sizeof("2026-01-01 00:00:00")

static void time_format(uint64_t time, char ret_text[static TIME_SIZE]) {
        time_t seconds = (time_t) (time / NSEC_PER_SEC);
        struct tm local;

        ret_text[0] = '\0';
        if (localtime_r(&seconds, &local))
                (void) strftime(ret_text, TIME_SIZE, "%F %T", &local);
}

/* ---- ls ---- */

typedef struct Listing {
        Printer printer;
        size_t prefix; /* of paths, that is not printed */
        bool details;
} Listing;

static int list_file(const HutchFile *file, void *user) {
        Listing *listing = user;
        _cleanup_(message_freep) ProtobufCMessage *message = message_of(file);
        const char *path = strlen(file->path) > listing->prefix ? file->path + listing->prefix : file->path;
        char mode[11], time[TIME_SIZE];

        if (printer_add_message(&listing->printer, message))
                return 0;

        if (listing->details) {
                mode_format(file, mode);
                time_format(file->modify_time, time);
                printer_add_cell(&listing->printer, TONE_PLAIN, mode);
                printer_add_cellf(&listing->printer, TONE_PLAIN, "%u:%u", file->uid, file->gid);
                printer_add_cellf(&listing->printer, TONE_PLAIN, "%" PRIu64, file->size);
                printer_add_cell(&listing->printer, TONE_PLAIN, time);
        }
        if (file->type == HUTCH_FILE_SYMLINK && listing->details)
                printer_add_cellf(&listing->printer, TONE_PLAIN, "%s -> %s", path, file->symlink_target);
        else
                printer_add_cellf(&listing->printer, TONE_PLAIN, "%s%s", path,
                                  file->type == HUTCH_FILE_DIRECTORY ? "/" : "");
        return 0;
}

static int list_place(const Arguments *arguments, HutchClient *client, const Place *place, HutchError **ret_error) {
        HutchListFilesOptions options = {
                .depth = arguments_have(arguments, "recursive") ? DEPTH_MAX : 1,
                .glob = arguments_get(arguments, "glob"),
        };
        _cleanup_(hutch_file_freep) HutchFile *file = NULL;
        Listing listing = { .details = arguments_have(arguments, "long") };
        bool changed = false;
        int r = hutch_file_stat(client, place->sandbox, place->path, true, &file, ret_error);

        if (r < 0)
                return r;

        if (listing.details)
                listing.printer = printer_new(output_format(arguments), "MODE", "OWNER", "SIZE", "MODIFIED", "NAME");
        else
                listing.printer = (Printer){ .format = output_format(arguments), .n_columns = 1 };
        if (file->type != HUTCH_FILE_DIRECTORY) {
                (void) list_file(file, &listing);
                printer_end(&listing.printer);
                return 0;
        }

        listing.prefix = str_equal(file->path, "/") ? 1 : strlen(file->path) + 1;
        r = hutch_file_list(client, place->sandbox, place->path, &options, list_file, &listing, &changed, ret_error);
        printer_end(&listing.printer);
        if (r == 0 && changed)
                report_note("the folder changed meanwhile: some entries may be missing or doubled");
        return r;
}

int command_file_list(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(place_clear) Place place = {};
        _cleanup_(error_clear) HutchError err = {};

        if (place_parse_inside(arguments->operands[0], &place, &err) < 0)
                return usage_error(arguments, "%s; sandboxes are listed by 'hutch list'", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0 || list_place(arguments, client, &place, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        return EXIT_SUCCESS;
}

/* ---- cat ---- */

/* Calls @function with each operand's place; goes on when one fails. */
static int for_each_place(const Arguments *arguments, int (*function)(const Arguments *arguments, HutchClient *client,
                                                                      const Place *place, HutchError **ret_error)) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *failed = NULL;
        int exit_code = EXIT_SUCCESS;

        for (size_t i = 0; i < arguments->n_operands; i++) {
                _cleanup_(error_clear) HutchError err = {};
                _cleanup_(place_clear) Place place = {};

                if (place_parse_inside(arguments->operands[i], &place, &err) < 0)
                        return usage_error(arguments, "%s", error_message(&err));
        }
        if (connection_open(arguments, &client, &failed) < 0)
                return report_error(failed, NULL, EXIT_FAILURE);

        for (size_t i = 0; i < arguments->n_operands; i++) {
                _cleanup_(hutch_error_freep) HutchError *error = NULL;
                _cleanup_(place_clear) Place place = {};
                int r;

                (void) place_parse_inside(arguments->operands[i], &place, NULL);
                r = function(arguments, client, &place, &error);
                if (r < 0 && !error)
                        report_note("%s: %s", arguments->operands[i], strerror(-r));
                if (r < 0)
                        exit_code = error ? report_error(error, arguments->operands[i], EXIT_FAILURE) : EXIT_FAILURE;
        }
        return exit_code;
}

static int cat_one(const Arguments *arguments, HutchClient *client, const Place *place, HutchError **ret_error) {
        const HutchDownloadOptions options = { .max_size = UINT64_MAX };
        _cleanup_(hutch_download_freep) HutchDownload *download = NULL;
        const void *data;
        size_t len;
        int r = hutch_download_new(client, place->sandbox, place->path, &options, &download, ret_error);

        (void) arguments;
        while (r >= 0 && (r = hutch_download_next(download, true, &data, &len, ret_error)) > 0)
                r = fd_write_all(STDOUT_FILENO, data, len);
        return r;
}

int command_file_cat(const Arguments *arguments) {
        return for_each_place(arguments, cat_one);
}

/* ---- stat ---- */

static void print_details(const HutchFile *file) {
        Printer printer = printer_new_details();
        char mode[11], time[TIME_SIZE], text[64];

        mode_format(file, mode);
        time_format(file->modify_time, time);
        printer_add_detail(&printer, "Path", file->path);
        printer_add_detail(&printer, "Type", hutch_file_type_name(file->type));
        printer_add_detail(&printer, "Target", file->symlink_target);
        (void) snprintf(text, sizeof(text), "%" PRIu64, file->size);
        printer_add_detail(&printer, "Size", text);
        (void) snprintf(text, sizeof(text), "%s (%04o)", mode, file->mode);
        printer_add_detail(&printer, "Mode", text);
        (void) snprintf(text, sizeof(text), "%u:%u", file->uid, file->gid);
        printer_add_detail(&printer, "Owner", text);
        printer_add_detail(&printer, "Modified", time);
        (void) snprintf(text, sizeof(text), "%" PRIu64, file->links);
        printer_add_detail(&printer, "Links", text);
        (void) snprintf(text, sizeof(text), "%" PRIu64, file->disk_bytes);
        printer_add_detail(&printer, "On disk", text);
        printer_add_detail(&printer, "Version", file->version);
        printer_end(&printer);
}

static int stat_one(const Arguments *arguments, HutchClient *client, const Place *place, HutchError **ret_error) {
        _cleanup_(hutch_file_freep) HutchFile *file = NULL;
        _cleanup_(message_freep) ProtobufCMessage *message = NULL;
        int r = hutch_file_stat(client, place->sandbox, place->path, arguments_have(arguments, "follow"), &file,
                                ret_error);

        if (r < 0)
                return r;

        message = message_of(file);
        if (output_format(arguments) == FORMAT_TABLE)
                print_details(file);
        else
                print_message(output_format(arguments), message);
        return 0;
}

int command_file_stat(const Arguments *arguments) {
        return for_each_place(arguments, stat_one);
}

/* ---- rm, mkdir, mv ---- */

static int remove_one(const Arguments *arguments, HutchClient *client, const Place *place, HutchError **ret_error) {
        return hutch_file_remove(client, place->sandbox, place->path, arguments_have(arguments, "recursive"),
                                 arguments_have(arguments, "force"), NULL, ret_error);
}

int command_file_remove(const Arguments *arguments) {
        return for_each_place(arguments, remove_one);
}

static int make_one(const Arguments *arguments, HutchClient *client, const Place *place, HutchError **ret_error) {
        const char *mode = arguments_get(arguments, "mode");

        return hutch_file_make_directory(client, place->sandbox, place->path,
                                         mode ? (uint32_t) strtoul(mode, NULL, 8) : 0,
                                         arguments_have(arguments, "parents"), NULL, ret_error);
}

int command_file_make_directory(const Arguments *arguments) {
        const char *mode = arguments_get(arguments, "mode");

        if (mode && (mode[strspn(mode, "01234567")] || !*mode || strlen(mode) > 4 || strtoul(mode, NULL, 8) > 0777))
                return usage_error(arguments, "--mode cannot be '%s'; it is octal, 0 to 777", mode);
        return for_each_place(arguments, make_one);
}

int command_file_move(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(hutch_file_freep) HutchFile *target = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(place_clear) Place from = {}, to = {};
        _cleanup_free_ char *path = NULL, *name = NULL;

        if (place_parse_inside(arguments->operands[0], &from, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        place_parse(arguments->operands[1], &to);
        if (to.sandbox && !str_equal(to.sandbox, from.sandbox))
                return usage_error(arguments, "files are moved within one sandbox; copy them with 'hutch cp'");
        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        /* Into a folder that is there, as mv does it. */
        name = path_base_name(from.path);
        if (name && hutch_file_stat(client, from.sandbox, to.path, true, &target, NULL) == 0 &&
            target->type == HUTCH_FILE_DIRECTORY)
                path = path_join(to.path, name);
        if (hutch_file_move(client, from.sandbox, from.path, path ? path : to.path,
                            !arguments_have(arguments, "no-clobber"), arguments_have(arguments, "parents"), NULL,
                            &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        return EXIT_SUCCESS;
}

/* ---- diff ---- */

static int print_image_change(const HutchImageChange *change, void *user) {
        Printer *printer = user;
        _cleanup_(message_freep) ProtobufCMessage *message =
                contract_decode("ImageChange", change->encoded, change->encoded_len);
        bool is_folder = change->file && change->file->type == HUTCH_FILE_DIRECTORY;

        if (printer_add_message(printer, message))
                return 0;

        printer_add_cellf(printer, TONE_PLAIN, "%c", hutch_image_change_name(change->type)[0]);
        printer_add_cellf(printer, TONE_PLAIN, "%s%s", change->path, is_folder ? "/" : "");
        return 0;
}

int command_file_diff(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(place_clear) Place place = {};
        _cleanup_(printer_clear) Printer printer = { .format = output_format(arguments), .n_columns = 2 };
        bool incomplete = false;
        int r;

        if (place_parse_inside(arguments->operands[0], &place, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        /* An id alone is all of the sandbox. */
        r = hutch_file_changes(client, place.sandbox, strchr(arguments->operands[0], ':') ? place.path : "/",
                               print_image_change, &printer, &incomplete, &error);
        if (r < 0)
                return report_error(error, NULL, EXIT_FAILURE);
        printer_end(&printer);
        if (incomplete)
                report_note("something is left out: what the sandbox's user may not read, or lies too deep");
        return EXIT_SUCCESS;
}

/* ---- watch ---- */

static void print_change(const HutchFileChange *change, Format format) {
        if (format != FORMAT_TABLE) {
                _cleanup_(message_freep) ProtobufCMessage *message =
                        contract_decode("WatchFilesResponse", change->encoded, change->encoded_len);
                _cleanup_free_ char *text =
                        format == FORMAT_JSON ? message_to_json(message, false) : message_to_yaml(message);

                (void) printf("%s%s", format == FORMAT_YAML ? "---\n" : "", text);
        } else if (change->overflow) {
                report_note("changes came too fast, and some were lost: look at the folder anew");
        } else {
                _cleanup_free_ char *path = text_printable(change->path), *old = text_printable(change->old_path);

                (void) printf("%-8s %s%s%s\n", hutch_file_change_name(change->type), old, *old ? " -> " : "", path);
        }
        (void) fflush(stdout);
}

int command_file_watch(const Arguments *arguments) {
        _cleanup_(hutch_client_freep) HutchClient *client = NULL;
        _cleanup_(hutch_error_freep) HutchError *error = NULL;
        _cleanup_(hutch_file_watch_freep) HutchFileWatch *watch = NULL;
        _cleanup_(error_clear) HutchError err = {};
        _cleanup_(place_clear) Place place = {};
        HutchFileChange change;

        if (place_parse_inside(arguments->operands[0], &place, &err) < 0)
                return usage_error(arguments, "%s", error_message(&err));
        if (connection_open(arguments, &client, &error) < 0 ||
            hutch_file_watch_new(client, place.sandbox, place.path, arguments_have(arguments, "recursive"), NULL,
                                 &watch, &error) < 0)
                return report_error(error, NULL, EXIT_FAILURE);

        /* Who cannot write any more has nobody to go on for; why, is told at the end. */
        while (!ferror(stdout) && hutch_file_watch_next(watch, true, &change, &error) > 0)
                if (change.type == 0 && !change.overflow)
                        report_note("watching %s:%s", place.sandbox, place.path);
                else
                        print_change(&change, output_format(arguments));
        return ferror(stdout) ? EXIT_FAILURE : report_error(error, NULL, EXIT_FAILURE);
}
