/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A limit that this host does not enforce. */
typedef struct UnenforcedLimit {
        const char *limit; /* a field of hutch.v1.ResourceLimits; NULL ends a list */
        const char *why;   /* a clause, for people */
        const char *fix;   /* the command that helps, one line; "": there is none */
} UnenforcedLimit;
