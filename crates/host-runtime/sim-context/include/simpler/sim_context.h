/* What the simulated chips of one process share: libsimpler_sim_context.so.
 *
 * Each host runtime object has its own copy of the simulator, so none of them can know what another one has. This object
 * is loaded once a process, with RTLD_GLOBAL, before any of them, and stays: they find it by name. It knows which device
 * ids of the process are taken.
 *
 * Threads: any. Fork: a child starts with every device free, since it has none of its parent's chips.
 * Its third export is simpler_host_log_bind_state.
 */
#ifndef SIMPLER_SIM_CONTEXT_H
#define SIMPLER_SIM_CONTEXT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Device ids are 0 to this, exclusive. */
#define SIMPLER_SIM_DEVICES 64

enum {
    SIMPLER_SIM_CLAIMED = 0,
    SIMPLER_SIM_IN_USE = 1,      /* a chip of this process has the device */
    SIMPLER_SIM_OUT_OF_RANGE = 2 /* there is no such device */
};

/* Takes a device for a chip. */
int simpler_sim_context_claim(int32_t device_id);

/* Gives it back. Nothing happens where no chip of this process has it. */
void simpler_sim_context_release(int32_t device_id);

#ifdef __cplusplus
}
#endif

#endif
