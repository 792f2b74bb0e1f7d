/* Attention of one token over keys and values that lie in pages, wherever the table says.
 *
 * Per head and page: scores (AIC), their softmax within the page (AIV), the weighted sum of the values (AIC), and the
 * merge of that into what the pages before gave (AIV), which alone is in the order of the pages.
 *
 * tensors: q [heads, dim], keys and values [pages, heads, page, dim], out [heads, dim] F32
 * scalars: tokens of a page, tokens in all, then the page table
 */
#include "views.h"

enum { SCORES, SOFTMAX, VALUES, MERGE };

static int submit(const SimplerOrchestrationApi *api, SimplerRun *run, int kernel, const SimplerTaskArg *list,
                  uint32_t count, const uint64_t *scalars, uint32_t scalar_count) {
    SimplerTask task = simpler_task(list, count);
    if (kernel == SCORES || kernel == VALUES) task.aic = kernel;
    else task.aiv0 = kernel;
    task.scalars = scalars;
    task.scalar_count = scalar_count;
    return api->submit_task(run, &task) < 0;
}

SIMPLER_EXPORT int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    config->tensors_min = 4;
    config->scalars_min = 3;
    return 0;
}

SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    const SimplerTensor *t = args->tensors;
    uint32_t heads = t[0].shapes[0], dim = t[0].shapes[1];
    uint32_t page = (uint32_t)args->scalars[0], tokens = (uint32_t)args->scalars[1];
    uint32_t pages = (tokens + page - 1) / page;
    if (args->scalar_count < 2 + pages) {
        api->report_fatal(run, "the page table is shorter than the tokens are many");
        return 1;
    }
    for (uint32_t head = 0; head < heads; head++) {
        SimplerTensor q = slice(&t[0], head * dim, dim), out = slice(&t[3], head * dim, dim);
        /* What the pages so far gave: the sum, then the largest score and the sum of the weights. */
        SimplerTensor sum = fresh(dim), weight = fresh(2), *both[] = {&sum, &weight};
        if (api->alloc_tensors(run, both, 2) < 0) return 2;
        for (uint32_t i = 0; i < pages; i++) {
            uint64_t at = (args->scalars[2 + i] * heads + head) * page * dim;
            uint32_t many = i + 1 < pages ? page : tokens - i * page;
            SimplerTensor keys = slice(&t[1], at, many * dim), values = slice(&t[2], at, many * dim);
            SimplerTensor scores = fresh(many), part = fresh(dim), part_weight = fresh(2);
            SimplerTaskArg scoring[] = {{&q, SIMPLER_INPUT}, {&keys, SIMPLER_INPUT}, {&scores, SIMPLER_OUTPUT}};
            if (submit(api, run, SCORES, scoring, 3, 0, 0)) return 3;
            SimplerTaskArg weighing[] = {{&scores, SIMPLER_INOUT}, {&part_weight, SIMPLER_OUTPUT}};
            if (submit(api, run, SOFTMAX, weighing, 2, 0, 0)) return 4;
            SimplerTaskArg summing[] = {{&scores, SIMPLER_INPUT}, {&values, SIMPLER_INPUT}, {&part, SIMPLER_OUTPUT}};
            if (submit(api, run, VALUES, summing, 3, 0, 0)) return 5;
            uint64_t place[] = {i == 0, i + 1 == pages};
            SimplerTaskArg merging[] = {{&part, SIMPLER_INPUT},
                                        {&part_weight, SIMPLER_INPUT},
                                        {&sum, SIMPLER_INOUT},
                                        {&weight, SIMPLER_INOUT},
                                        {&out, SIMPLER_OUTPUT_EXISTING}};
            if (submit(api, run, MERGE, merging, 5, place, 2)) return 6;
        }
    }
    return 0;
}
