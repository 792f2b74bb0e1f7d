/* c = a b in square tiles: a task multiplies two tiles and adds the product to a tile of c.
 *
 * tensors: a [m, k], b [k, n], c [m, n] F32, c zero before
 * scalars: the side of a tile, which divides m, k and n
 */
#include "views.h"

SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    const SimplerTensor *t = args->tensors;
    uint32_t side = (uint32_t)args->scalars[0];
    for (uint32_t i = 0; i < t[0].shapes[0]; i += side)
        for (uint32_t j = 0; j < t[1].shapes[1]; j += side)
            for (uint32_t k = 0; k < t[0].shapes[1]; k += side) {
                SimplerTensor a = tile(&t[0], i, k, side, side), b = tile(&t[1], k, j, side, side),
                              c = tile(&t[2], i, j, side, side);
                SimplerTaskArg list[] = {{&a, SIMPLER_INPUT}, {&b, SIMPLER_INPUT}, {&c, SIMPLER_INOUT}};
                SimplerTask task = simpler_task(list, 3);
                task.aic = 0;
                if (api->submit_task(run, &task) < 0) return 1;
            }
    return 0;
}
