/* The softmax of each row of a matrix: one task, a block a group of rows.
 *
 * tensors: x, y [rows, columns] F32
 * scalars: blocks
 */
#include "views.h"

SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], y = args->tensors[1];
    SimplerTaskArg list[] = {{&x, SIMPLER_INPUT}, {&y, SIMPLER_OUTPUT_EXISTING}};
    SimplerTask task = simpler_task(list, 2);
    task.aiv0 = 0;
    task.block_count = (uint32_t)args->scalars[0];
    return api->submit_task(run, &task) < 0;
}
