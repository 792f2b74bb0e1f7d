/* Reads a prompt, in passes of a bounded number of tokens, and yields the token that follows it. */
#include "decoder.h"

ORCHESTRATION_EXPORT int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    configure(config);
    return 0;
}

ORCHESTRATION_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                                   const SimplerChipArgs *args) {
    Decoder decoder = {api, run, args->tensors, args->scalars};
    const char *why = refusal(&decoder);
    if (why) {
        api->report_fatal(run, why);
        return -1;
    }
    uint64_t tokens = args->scalars[RUN_TOKENS], chunk = args->scalars[RUN_CHUNK];
    uint64_t capacity = tokens < chunk ? tokens : chunk;
    int64_t error = 0;
    Workspace workspaces[2] = {0};
    Pass pass;
    for (uint64_t first = 0, number = 0; first < tokens && !error; first += chunk, number++) {
        uint64_t count = tokens - first < chunk ? tokens - first : chunk;
        error = submit_pass(&decoder, &workspaces[number % 2], &pass, first, count, capacity);
    }
    if (!error) error = submit_head(&decoder, &pass);
    return (int)error;
}
