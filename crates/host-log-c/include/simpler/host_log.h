/* The owner of a process's log, for C and C++: what libsimpler_host_log.{a,so} offers.
 *
 * A process has one owner. It holds the state that all modules share, runs the writer thread, and hands the
 * state to the modules that it loads (host_log_binding.h). A module that only logs needs none of this: see
 * unified_log.h, which also serves a program that links the owner, once it has adopted the owner's state:
 *
 *     simpler_host_log_init(SIMPLER_LOG_TIMING, "log", 0);
 *     simpler_host_log_adopt(simpler_host_log_state());   // unified_log.h: now LOG_* and spans work
 *     ...
 *     simpler_host_log_close(1000);
 *
 * Link: `cc program.c libsimpler_host_log.a -lpthread -ldl -lm`, or -lsimpler_host_log. The shared library is
 * never unmapped once it is loaded.
 *
 * A process that has another owner binds this library like any module (simpler_host_log_bind_state, which it
 * exports, too): then it logs there, and what only an owner may do is SIMPLER_HOST_LOG_NOT_THE_OWNER. A module that
 * logs through unified_log.h and is to be bound by a loader does not link the archive, whose binder, bound in place of
 * the header's, would leave the header's logger silent.
 *
 * Every function may be called by any thread, at any time after the first simpler_host_log_init returned,
 * unless it says otherwise. None unwinds: a failure inside is SIMPLER_HOST_LOG_PANICKED or the neutral answer.
 * Texts that are handed in are copied before the call returns. errno may change.
 */
#ifndef SIMPLER_HOST_LOG_H
#define SIMPLER_HOST_LOG_H

#include <stddef.h>
#include <stdint.h>

#include <simpler/host_log_state.h>
#include <simpler/host_span.h>
#include <simpler/log_level.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the functions return. */
typedef enum SimplerHostLogResult {
    SIMPLER_HOST_LOG_OK = 0,
    SIMPLER_HOST_LOG_BAD_ARGUMENT = 1,   /* a null pointer, or a threshold off the ladder */
    SIMPLER_HOST_LOG_BAD_PATH = 2,       /* the directory's absolute path has more than 1023 bytes */
    SIMPLER_HOST_LOG_BAD_DIRECTORY = 3,  /* the directory cannot be made or is none */
    SIMPLER_HOST_LOG_IN_TRANSITION = 4,  /* another thread is starting or stopping the writer */
    SIMPLER_HOST_LOG_NO_WRITER = 5,      /* no memory or no thread for the writer */
    SIMPLER_HOST_LOG_NOT_DRAINED = 6,    /* accepted records did not reach the destination in time */
    SIMPLER_HOST_LOG_ALREADY_BOUND = 7,  /* the first directory stays; not a failure */
    SIMPLER_HOST_LOG_PANICKED = 8,       /* a bug of this library; the log may go on */
    SIMPLER_HOST_LOG_NOT_THE_OWNER = 9   /* this library is bound to another owner's log, which sets it up */
} SimplerHostLogResult;

/* What the log lost and what it still holds, for this process. */
typedef struct SimplerHostLogCounts {
    uint64_t pending;                         /* accepted records that the writer has not finished */
    uint64_t dropped;                         /* lost records: the sum of by_reason */
    uint64_t by_reason[SIMPLER_DROP_REASONS]; /* indices SIMPLER_DROP_... */
    uint64_t reported;                        /* how many of the lost a drop report in the log has told */
} SimplerHostLogCounts;

/* Sets the process's log up.
 *
 * `threshold`     a value of the ladder (log_level.h)
 * `directory`     where host.<pid>.log goes, zero-terminated, made if missing; NULL or empty: stderr, until
 *                 simpler_host_log_set_directory
 * `defer_writer`  non-zero leaves the writer to simpler_host_log_start_writer: for a process that forks first
 *
 * May be called again, for instance in a forked child: the threshold changes, the first directory stays, a
 * writer that runs goes on. On a normal exit accepted records are drained for up to a second; before _exit
 * call simpler_host_log_close. Not from a signal handler. */
int simpler_host_log_init(int32_t threshold, const char *directory, int defer_writer);

/* Starts the writer, unless this process's already runs, and emits the clock anchor. From then on records are
 * queued. Fork: call it in parent and child after the last fork. */
int simpler_host_log_start_writer(void);

/* Binds the log's directory for a process that learns it late. The first that is not empty wins: for a later
 * one SIMPLER_HOST_LOG_ALREADY_BOUND. Empty is SIMPLER_HOST_LOG_OK and binds nothing. */
int simpler_host_log_set_directory(const char *directory);

/* Changes the threshold for all bound modules of the process at once; it must be on the ladder. */
int simpler_host_log_set_threshold(int32_t threshold);

/* Waits up to `timeout_ms` until every record accepted before the call is written or counted. */
int simpler_host_log_flush(uint32_t timeout_ms);

/* Quiesces: drains, ends the writer and reports new losses in the log. Only after SIMPLER_HOST_LOG_OK may the
 * process fork; else the writer goes on as before. Records of other threads meanwhile are lost and counted
 * (not_admitted). Afterwards records are written at once, until simpler_host_log_start_writer. */
int simpler_host_log_prepare_to_fork(uint32_t timeout_ms);

/* Quiesces for good, before the process ends. Records that do not make it in time are told on stderr, or in the
 * log's file if stderr takes nothing just then; the result is SIMPLER_HOST_LOG_NOT_DRAINED, and the writer goes on. */
int simpler_host_log_close(uint32_t timeout_ms);

/* The state to hand to modules: never NULL, the same for the life of the process, owned by the library. */
SimplerHostLogState *simpler_host_log_state(void);

/* Stores the counters of this process in `out`. Fork: a child starts from zero. */
int simpler_host_log_counts(SimplerHostLogCounts *out);

/* What a result means, in lower case without a full stop: a constant text, never NULL. */
const char *simpler_host_log_error_text(int result);

/* Copies what the calling thread's latest failure said, with the system's reason, into `out` (`size` bytes,
 * zero-terminated, cut if need be) and gives the whole text's length. 0: nothing has failed on this thread. */
size_t simpler_host_log_last_error(char *out, size_t size);

/* Emits a text record. `level` is rounded down to the ladder; `func` is zero-terminated, NULL for none;
 * `message` has `length` bytes and need not be terminated or UTF-8 (what is not becomes U+FFFD). Rules and
 * limits of the record: unified_log.h. */
int simpler_host_log_emit_text(int32_t level, const char *func, const char *message, size_t length);

/* Emits a finished span of the calling thread; nothing while TIMING is muted or for an empty name. NULL, or a
 * NULL name, is SIMPLER_HOST_LOG_BAD_ARGUMENT. Bytes of its texts that are not UTF-8 become U+FFFD. */
int simpler_host_log_emit_span(const SimplerHostSpan *span);

/* CLOCK_MONOTONIC in ns: the one clock of records and spans. Async-signal-safe. */
int64_t simpler_host_log_monotonic_ns(void);

#ifdef __cplusplus
}
#endif

#endif
