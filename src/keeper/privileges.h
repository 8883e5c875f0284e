/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Giving up what a process may do. Irrevocable. */

/* Removes every capability, from all sets, and the way to get any by executing a program. */
int privileges_drop(void);

/* Sets all signals to what they do by default. They stay blocked as they are. */
void signals_reset(void);
