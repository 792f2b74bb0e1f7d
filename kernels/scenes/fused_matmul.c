/* y = relu(a b), a MIX task a block of rows: the AIC multiplies row by row and says how far it has come, the AIVs take
 * the even and the odd rows from there.
 *
 * tensors: a [m, k], b [k, n], y [m, n] F32, done [blocks] I32, zero before
 * scalars: blocks
 */
#include "views.h"

SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    const SimplerTensor *t = args->tensors;
    SimplerTensor a = t[0], b = t[1], y = t[2], done = t[3], product = fresh(t[2].shapes[0] * t[2].shapes[1]);
    SimplerTaskArg list[] = {{&a, SIMPLER_INPUT},
                             {&b, SIMPLER_INPUT},
                             {&product, SIMPLER_OUTPUT},
                             {&y, SIMPLER_OUTPUT_EXISTING},
                             {&done, SIMPLER_INOUT}};
    SimplerTask task = simpler_task(list, 5);
    task.aic = 0;
    task.aiv0 = 1;
    task.aiv1 = 2;
    task.block_count = (uint32_t)args->scalars[0];
    return api->submit_task(run, &task) < 0;
}
