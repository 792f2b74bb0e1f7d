/* What the host hands to the AICPU with a launch. The Rust side is crates/onboard/src/arguments.rs; both are built
 * together, so there is no version in it. Never run on silicon.
 */
#ifndef SIMPLER_AICPU_ARGS_H
#define SIMPLER_AICPU_ARGS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the init kernel, which runs once in the life of a Worker's device. */
typedef struct SimplerAicpuInitArgs {
    int32_t log_level; /* of the ladder (log_level.h); latched, and never changed by the host's threshold again */
    int32_t device_id; /* the number under which the host opened the device */
} SimplerAicpuInitArgs;

/* Of a run. */
typedef struct SimplerAicpuKernelArgs {
    uint64_t device_wall_data_base; /* the phase buffer's device address; 0: nothing is stamped */
    uint32_t aicpu_launched;        /* rows of the phase buffer */
    uint32_t aicpu_logical;         /* threads that survive the affinity gate */
} SimplerAicpuKernelArgs;

#ifdef __cplusplus
}
#endif

#endif
