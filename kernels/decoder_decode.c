/* Reads one token behind those in the cache and yields the next. */
#include "decoder.h"

ORCHESTRATION_EXPORT int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    configure(config);
    return 0;
}

ORCHESTRATION_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                                   const SimplerChipArgs *args) {
    Decoder decoder = {api, run, args->tensors, args->scalars};
    const char *why = refusal(&decoder);
    if (!why && args->scalars[RUN_TOKENS] != 1) why = "decoder: a decode step reads one token";
    if (why) {
        api->report_fatal(run, why);
        return -1;
    }
    Workspace workspace = {0};
    Pass pass;
    int64_t error = submit_pass(&decoder, &workspace, &pass, 0, 1, 1);
    if (!error) error = submit_head(&decoder, &pass);
    return (int)error;
}
