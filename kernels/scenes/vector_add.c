/* c = a + b in tiles, one task each.
 *
 * tensors: a, b, c [count] F32
 * scalars: tiles
 */
#include "views.h"

SIMPLER_EXPORT int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    config->tensors_min = 3;
    config->scalars_min = 1;
    return 0;
}

SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    const SimplerTensor *t = args->tensors;
    uint32_t tiles = (uint32_t)args->scalars[0], count = t[0].shapes[0];
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t first = count * i / tiles, many = count * (i + 1) / tiles - first;
        SimplerTensor a = slice(&t[0], first, many), b = slice(&t[1], first, many), c = slice(&t[2], first, many);
        SimplerTaskArg list[] = {{&a, SIMPLER_INPUT}, {&b, SIMPLER_INPUT}, {&c, SIMPLER_OUTPUT_EXISTING}};
        SimplerTask task = simpler_task(list, 3);
        task.aiv0 = 0;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
