/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a walk over the contract's descriptors. What does not: any message. */

#include "contract-types.h"

#include <assert.h>

#include "base/strings.h"
#include "contract/hutch/keeper/v1/keeper.pb-c.h"
#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/file.pb-c.h"
#include "contract/hutch/v1/image.pb-c.h"
#include "contract/hutch/v1/policy.pb-c.h"
#include "contract/hutch/v1/port.pb-c.h"
#include "contract/hutch/v1/provider.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"
#include "contract/hutch/v1/sandbox_exec.pb-c.h"
#include "contract/hutch/v1/system.pb-c.h"

static const ProtobufCServiceDescriptor *const services[] = {
        &hutch__v1__agent_sandbox_service__descriptor, &hutch__v1__exec_service__descriptor,
        &hutch__v1__file_service__descriptor,          &hutch__v1__image_service__descriptor,
        &hutch__v1__policy_service__descriptor,        &hutch__v1__port_service__descriptor,
        &hutch__v1__provider_service__descriptor,      &hutch__v1__sandbox_exec_service__descriptor,
        &hutch__v1__system_service__descriptor,        &hutch__keeper__v1__keeper_service__descriptor,
};

static ContractTypes all;

static const ProtobufCMessageDescriptor *find(const char *name) {
        for (size_t i = 0; i < all.n_types; i++)
                if (str_equal(all.types[i]->name, name))
                        return all.types[i];
        return NULL;
}

static void add(const ProtobufCMessageDescriptor *type) {
        if (find(type->name))
                return;

        assert(all.n_types < CONTRACT_TYPES_MAX);
        all.types[all.n_types++] = type;
        for (unsigned i = 0; i < type->n_fields; i++)
                if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
                        add(type->fields[i].descriptor);
}

const ContractTypes *contract_types(void) {
        if (all.n_types > 0)
                return &all;

        for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++)
                for (unsigned j = 0; j < services[i]->n_methods; j++) {
                        add(services[i]->methods[j].input);
                        add(services[i]->methods[j].output);
                }
        add(&hutch__keeper__v1__keeper_config__descriptor); /* it is handed over without a call */
        return &all;
}

const ProtobufCMessageDescriptor *contract_type_find(const char *name) {
        (void) contract_types();
        return find(name);
}
