// The arguments of a task in C++: a class that gathers them, and the call that submits it; and a scope of tasks.
//
//     simpler::L0TaskArgs args;
//     args.add_input(x);
//     args.add_output(y);
//     args.set_task_timing_slot(3);
//     int64_t id = args.submit(api, run, {.aic = 0});
//
// What a setter refuses is remembered, and submit then fails with error 5 (SIMPLER_ARGUMENT_*). Tensors are
// referred to, not copied, until submit has returned. C++17; nothing is allocated and nothing is thrown.
#ifndef SIMPLER_ORCHESTRATION_HPP
#define SIMPLER_ORCHESTRATION_HPP

#include <simpler/orchestration.h>

namespace simpler {

// The kernels of a task, by index in the callable's list.
struct MixedKernels {
    int32_t aic = SIMPLER_NO_KERNEL;
    int32_t aiv0 = SIMPLER_NO_KERNEL;
    int32_t aiv1 = SIMPLER_NO_KERNEL;
};

// A scope of tasks, from here to the end of the block: see scope_begin. What fails has failed the run.
//
//     {
//         simpler::TaskScope scope(api, run);
//         ...
//     }
class TaskScope {
  public:
    TaskScope(const SimplerOrchestrationApi *api, SimplerRun *run)
        : api_(api), run_(run), status_(api->scope_begin(run)) {}
    ~TaskScope() {
        if (status_ == 0) api_->scope_end(run_);
    }
    TaskScope(const TaskScope &) = delete;
    TaskScope &operator=(const TaskScope &) = delete;

    // 0, or why there is no scope.
    int32_t status() const { return status_; }

  private:
    const SimplerOrchestrationApi *api_;
    SimplerRun *run_;
    int32_t status_;
};

class L0TaskArgs {
  public:
    // As before the first call of any other function.
    void clear() { *this = L0TaskArgs(); }

    void add_input(SimplerTensor &tensor) { add(tensor, SIMPLER_INPUT); }
    void add_output(SimplerTensor &tensor) { add(tensor, SIMPLER_OUTPUT); }
    void add_inout(SimplerTensor &tensor) { add(tensor, SIMPLER_INOUT); }
    void add_output_existing(SimplerTensor &tensor) { add(tensor, SIMPLER_OUTPUT_EXISTING); }
    void add_no_dep(SimplerTensor &tensor) { add(tensor, SIMPLER_NO_DEP); }

    // More scalars than a task has are counted, and refused by submit.
    void add_scalar(uint64_t value) {
        if (scalar_count_ < SIMPLER_TASK_SCALARS_MAX) scalars_[scalar_count_] = value;
        scalar_count_++;
    }

    // How many times the task runs, SIMPLER_TASK_BLOCKS_MAX at most, and whether all of them at the same time.
    void set_block_count(uint32_t blocks) { task_.block_count = blocks; }
    void set_sync_start(bool together) {
        task_.attrs = (uint8_t)(together ? task_.attrs | SIMPLER_TASK_SYNC_START
                                         : task_.attrs & ~SIMPLER_TASK_SYNC_START);
    }

    // Whether tasks that wait for this one may be on their cores before it has finished.
    void set_early_resolve(bool early) {
        task_.attrs = (uint8_t)(early ? task_.attrs | SIMPLER_TASK_EARLY_RESOLVE
                                      : task_.attrs & ~SIMPLER_TASK_EARLY_RESOLVE);
    }

    // Runs the task only if a word is not 0: see simpler_task_set_predicate.
    void set_predicate(uint32_t arg) { simpler_task_set_predicate(&task_, arg); }

    // See simpler_task_set_timing_slot.
    void set_task_timing_slot(int32_t id) { simpler_task_set_timing_slot(&task_, id); }
    int32_t task_timing_slot() const { return simpler_task_timing_slot(&task_); }

    // Whether a setter has refused something.
    bool has_error() const { return task_.argument_error != 0; }

    // A task id >= 0, or a negative orchestrator error code.
    int64_t submit(const SimplerOrchestrationApi *api, SimplerRun *run, MixedKernels kernels) const {
        SimplerTask task = task_after(kernels, nullptr, 0);
        return api->submit_task(run, &task);
    }

    // The same for a task without kernels: see submit_dummy_task.
    int64_t submit_dummy(const SimplerOrchestrationApi *api, SimplerRun *run) const {
        SimplerTask task = task_after(MixedKernels(), nullptr, 0);
        return api->submit_dummy_task(run, &task);
    }

  protected:
    SimplerTask task_after(MixedKernels kernels, const int64_t *deps, uint32_t dep_count) const {
        SimplerTask task = task_;
        task.aic = kernels.aic;
        task.aiv0 = kernels.aiv0;
        task.aiv1 = kernels.aiv1;
        task.args = args_;
        task.arg_count = arg_count_;
        task.scalars = scalars_;
        task.scalar_count = scalar_count_;
        task.deps = deps;
        task.dep_count = dep_count;
        return task;
    }

  private:
    void add(SimplerTensor &tensor, uint64_t use) {
        if (arg_count_ < SIMPLER_TASK_TENSORS_MAX) {
            args_[arg_count_].tensor = &tensor;
            args_[arg_count_].use = use;
        }
        arg_count_++;
    }

    SimplerTask task_ = simpler_task(nullptr, 0);
    SimplerTaskArg args_[SIMPLER_TASK_TENSORS_MAX] = {};
    uint64_t scalars_[SIMPLER_TASK_SCALARS_MAX] = {};
    uint32_t arg_count_ = 0;
    uint32_t scalar_count_ = 0;
};

// The same with tasks to wait for that do not follow from the tensors.
template <uint32_t DepsMax = 16> class L0TaskArgsWithDeps : private L0TaskArgs {
  public:
    using L0TaskArgs::add_inout;
    using L0TaskArgs::add_input;
    using L0TaskArgs::add_no_dep;
    using L0TaskArgs::add_output;
    using L0TaskArgs::add_output_existing;
    using L0TaskArgs::add_scalar;
    using L0TaskArgs::has_error;
    using L0TaskArgs::set_block_count;
    using L0TaskArgs::set_early_resolve;
    using L0TaskArgs::set_predicate;
    using L0TaskArgs::set_sync_start;
    using L0TaskArgs::set_task_timing_slot;
    using L0TaskArgs::task_timing_slot;

    void clear() { *this = L0TaskArgsWithDeps(); }

    // False, and nothing added, once DepsMax are there.
    bool add_dep(int64_t task) {
        if (dep_count_ == DepsMax) return false;
        deps_[dep_count_++] = task;
        return true;
    }

    int64_t submit(const SimplerOrchestrationApi *api, SimplerRun *run, MixedKernels kernels) const {
        SimplerTask task = task_after(kernels, deps_, dep_count_);
        return api->submit_task(run, &task);
    }

    int64_t submit_dummy(const SimplerOrchestrationApi *api, SimplerRun *run) const {
        SimplerTask task = task_after(MixedKernels(), deps_, dep_count_);
        return api->submit_dummy_task(run, &task);
    }

  private:
    int64_t deps_[DepsMax] = {};
    uint32_t dep_count_ = 0;
};

} // namespace simpler
#endif
