/* The logger of a consumer module, whole: include this and log.
 *
 *     #include <simpler/unified_log.h>
 *     LOG_INFO("loaded %d pages", pages);
 *
 * There is nothing to link. All of it is defined here, weak and hidden, so that a module of several files
 * has one logger and is bound once; only simpler_host_log_bind_state leaves the module. Until its loader
 * binds the process's state (host_log_state.h) the module is silent. A program that owns a state of its own
 * and has no loader calls simpler_host_log_adopt. A module that is to be bound does not link
 * libsimpler_host_log.a: the archive's own binder would take the place of this one, and what is logged through
 * this header would stay unbound.
 *
 * What a log call does: nothing while its level is muted, and then its arguments are not evaluated. Else it
 * makes one record of at most 512 bytes on the stack and hands it to the owner's queue, which copies it.
 * While there is no writer (before the first start, after a quiesce) it writes the record itself with one
 * write(2), to stderr, or to <directory>/host.<pid>.log once a directory is bound. A bound directory is the
 * destination, not a preference: what it cannot take is lost and counted, never put elsewhere.
 *
 * A log call never fails towards its caller: each record lands or is counted, under exactly one reason. It does
 * not unwind or abort, leaves errno as it was, and a reader of stderr that has gone does not end the process. It
 * does not allocate by itself; vsnprintf, which formats a text, may for what needs much room (of glibc's: floating
 * point and precisions of hundreds of digits, wide strings, positional arguments), and where that fails the record
 * ends there with `~`. Threads: any; a thread that is cancelled finishes the write that it is at. Fork: in a child of
 * a parent that had a writer, records are refused and counted (not_admitted) until the child has its own. Signals:
 * spans, and texts without floating point, are made of async-signal-safe calls in practice; the C library does not
 * promise it of vsnprintf.
 *
 * C11 or C++11 and later with gcc or clang, strict or not; no feature macro is needed or disturbed. The
 * macros LOG_INFO and LOG_DEBUG are also names in <syslog.h>: a file includes one of the two.
 */
#ifndef SIMPLER_UNIFIED_LOG_H
#define SIMPLER_UNIFIED_LOG_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <simpler/host_log_state.h>
#include <simpler/host_span.h>
#include <simpler/log_level.h>

#if defined(__mips__) || defined(__sparc__) || defined(__alpha__) || defined(__hppa__)
#error "the numbers of open's flags below are not this architecture's"
#endif

/* 0 compiles spans out: unified_log_host_span does nothing, and the macros of strace.h leave neither an
 * instruction nor a string. Define it before the first include, per file: a module may be made of both kinds. */
#ifndef SIMPLER_HOST_STRACE
#define SIMPLER_HOST_STRACE 1
#endif

/* Defined in every file, kept once in a module, and seen by no other module. */
#define SIMPLER_LOG_SHARED __attribute__((weak, visibility("hidden")))
#define SIMPLER_LOG_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The functions ------------------------------------------------------------------------------------ */

/* Emits a text record of one level: `func: ` and the formatted body. The macros below also give the place in
 * the source, and do not evaluate their arguments while muted.
 *
 * A newline at the body's end is dropped, since the record has its own; others become \n, carriage returns
 * \r, so that a record is one line. What is longer than 512 bytes is cut there and ends in `~`. A NULL `func`
 * is written as ?, a NULL `fmt` as (null). */
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(2, 3) void unified_log_error(const char *func, const char *fmt, ...);
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(2, 3) void unified_log_warn(const char *func, const char *fmt, ...);
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(2, 3) void unified_log_timing(const char *func, const char *fmt, ...);
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(2, 3) void unified_log_info(const char *func, const char *fmt, ...);
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(2, 3) void unified_log_debug(const char *func, const char *fmt, ...);

/* As these five, with the level as a number (rounded down to the ladder) and a place in the source. `file`
 * is shortened to its base name; NULL for no place. */
SIMPLER_LOG_SHARED SIMPLER_LOG_PRINTF(5, 6) void unified_log_at(int32_t level, const char *func, const char *file,
                                                                int line, const char *fmt, ...);

/* Makes `state` the one that this module works on, as simpler_host_log_bind_state does, which only calls it.
 * For a program without a loader. Same results, same rules. */
SIMPLER_LOG_SHARED int simpler_host_log_adopt(SimplerHostLogState *state);

/* Whether a record of this level, rounded down to the ladder, would be emitted now. Any thread, any time. */
static inline int unified_log_enabled(int32_t level);

#if SIMPLER_HOST_STRACE
/* Emits a finished span of the calling thread. Nothing for a NULL span, a NULL or empty name, or while
 * TIMING is muted. The texts are copied before it returns. */
SIMPLER_LOG_SHARED void unified_log_host_span(const SimplerHostSpan *span);
/* Whether a span would be emitted now: ask before building attributes. */
static inline int unified_log_host_span_enabled(void);
#else
#define SIMPLER_LOG_NOTHING static inline __attribute__((always_inline)) /* no symbol, not even unoptimised */
SIMPLER_LOG_NOTHING void unified_log_host_span(const SimplerHostSpan *span) { (void)span; }
SIMPLER_LOG_NOTHING int unified_log_host_span_enabled(void) { return 0; }
#endif

/* ---- The macros: LOG_WARN("%d of %d pages", used, all) ------------------------------------------------ */

#if defined(__FILE_NAME__)
#define SIMPLER_LOG_FILE __FILE_NAME__
#else
#define SIMPLER_LOG_FILE __FILE__
#endif

/* The level may be any number, and is evaluated once. The format is the first of the other arguments: strict C11
 * has no macro with an optional rest. */
#define SIMPLER_LOG_AT(level, ...)                                                                   \
    do {                                                                                             \
        const int32_t simpler_log_level_ = simpler_log_round_record(level);                          \
        if (simpler_log_is_heard(simpler_log_level_)) {                                              \
            unified_log_at(simpler_log_level_, __func__, SIMPLER_LOG_FILE, __LINE__, __VA_ARGS__);   \
        }                                                                                            \
    } while (0)

#define LOG_DEBUG(...) SIMPLER_LOG_AT(SIMPLER_LOG_DEBUG, __VA_ARGS__)
#define LOG_INFO(...) SIMPLER_LOG_AT(SIMPLER_LOG_INFO, __VA_ARGS__)
#define LOG_TIMING(...) SIMPLER_LOG_AT(SIMPLER_LOG_TIMING, __VA_ARGS__)
#define LOG_WARN(...) SIMPLER_LOG_AT(SIMPLER_LOG_WARN, __VA_ARGS__)
#define LOG_ERROR(...) SIMPLER_LOG_AT(SIMPLER_LOG_ERROR, __VA_ARGS__)

/* ======================================================================================================= *
 * From here on is the implementation; nothing below is for callers. What is written here and what the Rust *
 * crates write is held together by a test with common vectors (crates/host-log-c/tests/encoders.rs).       *
 * ======================================================================================================= */

/* ---- What strict C11 hides, under names of our own so that no header can disagree --------------------- */

struct simpler_log_timespec {
    long seconds;
    long nanoseconds;
};
struct simpler_log_pollfd {
    int descriptor;
    short events;
    short revents;
};
extern int simpler_log_sys_clock_gettime(int, struct simpler_log_timespec *) __asm__("clock_gettime");
extern int simpler_log_sys_getpid(void) __asm__("getpid");
extern long simpler_log_sys_syscall(long, ...) __asm__("syscall");
extern unsigned long simpler_log_sys_pthread_self(void) __asm__("pthread_self");
extern int simpler_log_sys_open(const char *, int, ...) __asm__("open");
extern int simpler_log_sys_close(int) __asm__("close");
extern int simpler_log_sys_fcntl(int, int, ...) __asm__("fcntl");
extern long simpler_log_sys_write(int, const void *, size_t) __asm__("write");
extern long simpler_log_sys_lseek(int, long, int) __asm__("lseek");
extern int simpler_log_sys_ftruncate(int, long) __asm__("ftruncate");
extern int simpler_log_sys_flock(int, int) __asm__("flock");
extern int simpler_log_sys_poll(struct simpler_log_pollfd *, unsigned long, int) __asm__("poll");
extern int simpler_log_sys_madvise(void *, size_t, int) __asm__("madvise");
extern unsigned long simpler_log_sys_getauxval(unsigned long) __asm__("getauxval");
extern int simpler_log_sys_sched_yield(void) __asm__("sched_yield");
extern int simpler_log_sys_setcancelstate(int, int *) __asm__("pthread_setcancelstate");
typedef struct simpler_log_signals { /* sigset_t: signal n is bit n - 1 */
    unsigned long words[16];
} simpler_log_signals;
extern int simpler_log_sys_sigprocmask(int, const simpler_log_signals *, simpler_log_signals *) __asm__("sigprocmask");
extern int simpler_log_sys_sigpending(simpler_log_signals *) __asm__("sigpending");
extern int simpler_log_sys_sigtimedwait(const simpler_log_signals *, void *,
                                        const struct simpler_log_timespec *) __asm__("sigtimedwait");

struct simpler_log_statx { /* the kernel's, the same on every architecture */
    uint32_t mask, block_size;
    uint64_t attributes;
    uint32_t links, user, group;
    uint16_t mode, unused;
    uint64_t inode, size, blocks, attributes_mask;
    uint64_t times[8];
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t rest[14];
};

#if defined(__x86_64__)
#define SIMPLER_LOG_SYS_GETTID 186
#define SIMPLER_LOG_SYS_STATX 332
#elif defined(__powerpc64__)
#define SIMPLER_LOG_SYS_GETTID 207
#define SIMPLER_LOG_SYS_STATX 383
#elif defined(__s390x__)
#define SIMPLER_LOG_SYS_GETTID 236
#define SIMPLER_LOG_SYS_STATX 379
#else /* the generic table: aarch64, riscv64, loongarch64 */
#define SIMPLER_LOG_SYS_GETTID 178
#define SIMPLER_LOG_SYS_STATX 291
#endif

enum {
    SIMPLER_LOG_CLOCK_REALTIME = 0,
    SIMPLER_LOG_CLOCK_MONOTONIC = 1,
    SIMPLER_LOG_OPEN_APPEND = 01 | 0100 | 02000 | 02000000, /* O_WRONLY O_CREAT O_APPEND O_CLOEXEC */
    SIMPLER_LOG_AT_CWD = -100,
    SIMPLER_LOG_AT_EMPTY_PATH = 0x1000,
    SIMPLER_LOG_STATX_TYPE_AND_INODE = 0x101,
    SIMPLER_LOG_MODE_TYPE = 0170000,
    SIMPLER_LOG_MODE_REGULAR = 0100000,
    SIMPLER_LOG_GET_FLAGS = 3,
    SIMPLER_LOG_FLAGS_OF_A_LOG = 1 | 02000,   /* O_WRONLY O_APPEND, among */
    SIMPLER_LOG_FLAGS_ASKED_FOR = 3 | 02000, /* O_ACCMODE O_APPEND */
    SIMPLER_LOG_SEEK_SET = 0,
    SIMPLER_LOG_SEEK_CUR = 1,
    SIMPLER_LOG_SEEK_END = 2,
    SIMPLER_LOG_LOCK_EX = 2,
    SIMPLER_LOG_LOCK_NB = 4,
    SIMPLER_LOG_LOCK_UN = 8,
    SIMPLER_LOG_POLLOUT = 4,
    SIMPLER_LOG_MADV_WIPEONFORK = 18,
    SIMPLER_LOG_AUX_PAGE_BYTES = 6,
    SIMPLER_LOG_CANCEL_DISABLED = 1,
    SIMPLER_LOG_SIG_BLOCK = 0,
    SIMPLER_LOG_SIG_SETMASK = 2,
    SIMPLER_LOG_SIGPIPE = 13,
    SIMPLER_LOG_SIGXFSZ = 25,
    SIMPLER_LOG_STDERR = 2
};

/* ---- The limits ---------------------------------------------------------------------------------------- */

enum {
    SIMPLER_LOG_RECORD_BYTES = 512, /* the least PIPE_BUF of POSIX: a record is one atomic write to a pipe */
    SIMPLER_LOG_NAME_BYTES = 64,    /* of a span, encoded, the ~ of a cut one included */
    SIMPLER_LOG_ATTRS_BYTES = 192,  /* likewise */
    SIMPLER_LOG_RAW_NAME_BYTES = SIMPLER_LOG_NAME_BYTES + 1,   /* one more than fits shows that it is cut, */
    SIMPLER_LOG_RAW_ATTRS_BYTES = SIMPLER_LOG_ATTRS_BYTES + 1, /* and no raw byte takes less than one */
    SIMPLER_LOG_SPAN_FRAME = 1,     /* the first byte of a span frame */
    SIMPLER_LOG_FRAME_HEAD_BYTES = 68,
    SIMPLER_LOG_PAGE_BYTES = 4096,
    SIMPLER_LOG_DESCRIPTORS = 1024, /* of which it is noted that they meant a log file; what is usual as a limit */
    /* How often such a thread yields while another one writes the anchor, which comes first. A write takes some
     * us; the bound is for a destination that does not move. */
    SIMPLER_LOG_ANCHOR_YIELDS = 10000,
    /* How long a bind waits for an anchor that is being claimed, and an append for the file's lock. */
    SIMPLER_LOG_PATIENCE_MS = 100
};

/* ---- The module's own words ---------------------------------------------------------------------------- */

/* What this module is bound to. FORK: the child goes on with its copy, which names the child's state. */
typedef struct simpler_log_module_words {
    SimplerHostLogState *state; /* NULL until bound */
    const int32_t *threshold;   /* the state's, or `muted` until bound: one comparison is all a muted call costs */
    int32_t muted;
    int32_t has_wiped_page; /* the kernel zeroes simpler_log_wiped_page in every child */
    /* The descriptors that meant a log file in process files_pid at some time, one bit each, and how many threads are
     * about to note one. FORK: a child may have inherited some, and at its first record closes those that still mean
     * it. */
    int32_t files_pid;
    int32_t files_opening;
    uint64_t files[SIMPLER_LOG_DESCRIPTORS / 64];
} simpler_log_module_words;

extern SIMPLER_LOG_SHARED simpler_log_module_words simpler_log_module;
SIMPLER_LOG_SHARED simpler_log_module_words simpler_log_module = {
    NULL, &simpler_log_module.muted, SIMPLER_LOG_NUL, 0, 0, 0, {0}};

/* The pid, remembered: getpid costs more than a whole record. A page of its own, because that is what
 * MADV_WIPEONFORK works on; the kernel zeroes it in every child, however the child was made. Where pages are larger
 * than this one it would zero the module's other variables, too, so there every record asks for its pid. */
#define SIMPLER_LOG_PAGE __attribute__((aligned(4096)))
extern SIMPLER_LOG_SHARED SIMPLER_LOG_PAGE int32_t simpler_log_wiped_page[SIMPLER_LOG_PAGE_BYTES / 4];
SIMPLER_LOG_SHARED SIMPLER_LOG_PAGE int32_t simpler_log_wiped_page[SIMPLER_LOG_PAGE_BYTES / 4] = {0};

/* Whether a level of the ladder is let through. */
static inline int simpler_log_is_heard(int32_t level) {
    const int32_t *threshold = __atomic_load_n(&simpler_log_module.threshold, __ATOMIC_ACQUIRE);
    return level >= __atomic_load_n(threshold, __ATOMIC_RELAXED);
}

/* A number above the ladder is ERROR's, so that NUL mutes it, too. */
static inline int unified_log_enabled(int32_t level) { return simpler_log_is_heard(simpler_log_round_record(level)); }

/* What the module is bound to, NULL until then. Loaded once in each call: another bind may come in between. */
static inline SimplerHostLogState *simpler_log_state(void) {
    return __atomic_load_n(&simpler_log_module.state, __ATOMIC_ACQUIRE);
}

/* As simpler_log_is_heard, of a state that may be NULL. */
static inline int simpler_log_is_heard_by(SimplerHostLogState *state, int32_t level) {
    return state != NULL && level >= __atomic_load_n(&state->threshold, __ATOMIC_RELAXED);
}

static inline int32_t simpler_log_pid(void) {
    int32_t pid;
    if (!__atomic_load_n(&simpler_log_module.has_wiped_page, __ATOMIC_RELAXED)) {
        return simpler_log_sys_getpid();
    }
    pid = __atomic_load_n(&simpler_log_wiped_page[0], __ATOMIC_RELAXED);
    if (pid == 0) {
        pid = simpler_log_sys_getpid();
        __atomic_store_n(&simpler_log_wiped_page[0], pid, __ATOMIC_RELAXED);
    }
    return pid;
}

static inline int64_t simpler_log_clock_ns(int clock) {
    struct simpler_log_timespec time = {0, 0};
    simpler_log_sys_clock_gettime(clock, &time);
    return (int64_t)time.seconds * 1000000000 + time.nanoseconds;
}

static inline int64_t simpler_log_monotonic_ns(void) { return simpler_log_clock_ns(SIMPLER_LOG_CLOCK_MONOTONIC); }

/* ---- A line: counts what it is given and keeps what fits ------------------------------------------------ */

typedef struct simpler_log_line {
    char *out; /* SIMPLER_LOG_RECORD_BYTES */
    size_t size;
} simpler_log_line;

static inline void simpler_log_bytes(simpler_log_line *line, const char *bytes, size_t size) {
    size_t room = line->size < SIMPLER_LOG_RECORD_BYTES ? SIMPLER_LOG_RECORD_BYTES - line->size : 0;
    if (room != 0 && size != 0) {
        memcpy(line->out + line->size, bytes, size < room ? size : room);
    }
    line->size += size;
}

static inline void simpler_log_byte(simpler_log_line *line, char byte) { simpler_log_bytes(line, &byte, 1); }

#define SIMPLER_LOG_LITERAL(line, text) simpler_log_bytes((line), (text), sizeof(text) - 1)

/* Two functions, since dividing by a constant is no division. */
SIMPLER_LOG_SHARED void simpler_log_decimal(simpler_log_line *line, uint64_t value);
SIMPLER_LOG_SHARED void simpler_log_decimal(simpler_log_line *line, uint64_t value) {
    char digits[20]; /* of the largest */
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    simpler_log_bytes(line, digits + at, sizeof digits - at);
}

SIMPLER_LOG_SHARED void simpler_log_hex(simpler_log_line *line, uint64_t value);
SIMPLER_LOG_SHARED void simpler_log_hex(simpler_log_line *line, uint64_t value) {
    char digits[16];
    size_t at = sizeof digits;
    do {
        digits[--at] = "0123456789abcdef"[value & 15];
        value >>= 4;
    } while (value != 0);
    simpler_log_bytes(line, digits + at, sizeof digits - at);
}

static inline void simpler_log_signed(simpler_log_line *line, int64_t value) {
    if (value < 0) {
        simpler_log_byte(line, '-');
    }
    simpler_log_decimal(line, value < 0 ? UINT64_C(0) - (uint64_t)value : (uint64_t)value);
}

/* Ends the record. One that does not fit with its newline is cut to 512 bytes and marked. */
static inline size_t simpler_log_finish(simpler_log_line *line) {
    if (line->size < SIMPLER_LOG_RECORD_BYTES) {
        line->out[line->size] = '\n';
        return line->size + 1;
    }
    line->out[SIMPLER_LOG_RECORD_BYTES - 2] = '~';
    line->out[SIMPLER_LOG_RECORD_BYTES - 1] = '\n';
    return SIMPLER_LOG_RECORD_BYTES;
}

static inline void simpler_log_envelope(simpler_log_line *line, int64_t mono_ns, uint64_t thread, int32_t level) {
    const char *name = simpler_log_level_name(level);
    SIMPLER_LOG_LITERAL(line, "[mono_ns=");
    simpler_log_signed(line, mono_ns);
    SIMPLER_LOG_LITERAL(line, "][T0x");
    simpler_log_hex(line, thread);
    SIMPLER_LOG_LITERAL(line, "][");
    simpler_log_bytes(line, name, strlen(name));
    SIMPLER_LOG_LITERAL(line, "] ");
}

/* The bytes of a text up to its zero, at most `most`. */
static inline size_t simpler_log_length(const char *text, size_t most) {
    size_t length = 0;
    while (length < most && text[length] != 0) {
        length++;
    }
    return length;
}

/* Renders a text record and gives its size. `is_cut`: the body is only a beginning. */
SIMPLER_LOG_SHARED size_t simpler_log_encode_text(char *out, int64_t mono_ns, uint64_t thread, int32_t level,
                                                  const char *func, const char *file, int line_number,
                                                  const char *body, size_t size, int is_cut);
SIMPLER_LOG_SHARED size_t simpler_log_encode_text(char *out, int64_t mono_ns, uint64_t thread, int32_t level,
                                                  const char *func, const char *file, int line_number,
                                                  const char *body, size_t size, int is_cut) {
    simpler_log_line line;
    size_t at;
    line.out = out;
    line.size = 0;
    simpler_log_envelope(&line, mono_ns, thread, level);
    /* A colon would end the function's name, a line's end the record. */
    for (at = 0; at < SIMPLER_LOG_RECORD_BYTES && func[at] != 0; at++) {
        simpler_log_byte(&line, func[at] == ':' ? '.' : (func[at] == '\n' || func[at] == '\r') ? ' ' : func[at]);
    }
    SIMPLER_LOG_LITERAL(&line, ": ");
    if (file != NULL) {
        simpler_log_byte(&line, '[');
        for (at = 0; at < SIMPLER_LOG_RECORD_BYTES && file[at] != 0; at++) {
            simpler_log_byte(&line, (file[at] == '\n' || file[at] == '\r') ? ' ' : file[at]);
        }
        simpler_log_byte(&line, ':');
        simpler_log_decimal(&line, line_number < 0 ? 0 : (uint64_t)line_number);
        SIMPLER_LOG_LITERAL(&line, "] ");
    }
    if (size != 0 && body[size - 1] == '\n' && !is_cut) {
        size--;
    }
    for (at = 0; at < size; at++) {
        size_t plain = at;
        while (plain < size && body[plain] != '\n' && body[plain] != '\r') {
            plain++;
        }
        simpler_log_bytes(&line, body + at, plain - at);
        if (plain < size) {
            simpler_log_bytes(&line, body[plain] == '\n' ? "\\n" : "\\r", 2);
        }
        at = plain;
    }
    if (is_cut) {
        simpler_log_byte(&line, '~');
    }
    return simpler_log_finish(&line);
}

/* Renders a clock anchor and gives its size. */
SIMPLER_LOG_SHARED size_t simpler_log_encode_anchor(char *out, int64_t mono_ns, uint64_t thread, int32_t pid,
                                                    int64_t anchor_mono_ns, int64_t anchor_wall_ns);
SIMPLER_LOG_SHARED size_t simpler_log_encode_anchor(char *out, int64_t mono_ns, uint64_t thread, int32_t pid,
                                                    int64_t anchor_mono_ns, int64_t anchor_wall_ns) {
    simpler_log_line line;
    line.out = out;
    line.size = 0;
    simpler_log_envelope(&line, mono_ns, thread, SIMPLER_LOG_TIMING);
    SIMPLER_LOG_LITERAL(&line, "clock_anchor: [CLOCK_ANCHOR] v=1 pid=");
    simpler_log_signed(&line, pid);
    SIMPLER_LOG_LITERAL(&line, " mono_ns=");
    simpler_log_signed(&line, anchor_mono_ns);
    SIMPLER_LOG_LITERAL(&line, " wall_ns=");
    simpler_log_signed(&line, anchor_wall_ns);
    return simpler_log_finish(&line);
}

#if SIMPLER_HOST_STRACE

/* Whether a byte of a name, or of attributes, stands for itself. Space and = are the attributes' grammar. */
static inline int simpler_log_is_literal(unsigned char byte, int is_name) {
    if (byte < 0x20 || byte > 0x7e || byte == '%' || byte == '[' || byte == ']') {
        return 0;
    }
    return !(is_name && (byte == ' ' || byte == '='));
}

/* Pushes a field escaped: %XX for what the grammar needs. Units that do not fit `most` are left out whole,
 * and ~ follows, in place of the last one if need be. */
SIMPLER_LOG_SHARED void simpler_log_escaped(simpler_log_line *line, const char *raw, size_t size, size_t most,
                                            int is_name);
SIMPLER_LOG_SHARED void simpler_log_escaped(simpler_log_line *line, const char *raw, size_t size, size_t most,
                                            int is_name) {
    size_t used = 0, last_unit = 0, at;
    for (at = 0; at < size; at++) {
        unsigned char byte = (unsigned char)raw[at];
        int literal = simpler_log_is_literal(byte, is_name);
        size_t unit = literal ? 1 : 3;
        if (used + unit > most) {
            if (used == most) {
                line->size -= last_unit;
            }
            simpler_log_byte(line, '~');
            return;
        }
        if (literal) {
            simpler_log_byte(line, raw[at]);
        } else {
            char escape[3];
            escape[0] = '%';
            escape[1] = "0123456789ABCDEF"[byte >> 4];
            escape[2] = "0123456789ABCDEF"[byte & 15];
            simpler_log_bytes(line, escape, sizeof escape);
        }
        used += unit;
        last_unit = unit;
    }
}

/* Renders a span record and gives its size; it always fits. */
SIMPLER_LOG_SHARED size_t simpler_log_encode_span(char *out, int64_t mono_ns, uint64_t thread, int32_t pid,
                                                  int64_t tid, const SimplerHostSpan *span);
SIMPLER_LOG_SHARED size_t simpler_log_encode_span(char *out, int64_t mono_ns, uint64_t thread, int32_t pid,
                                                  int64_t tid, const SimplerHostSpan *span) {
    size_t name_size = simpler_log_length(span->name, SIMPLER_LOG_RAW_NAME_BYTES);
    size_t attrs_size =
        span->attrs == NULL ? 0 : simpler_log_length(span->attrs, SIMPLER_LOG_RAW_ATTRS_BYTES);
    simpler_log_line line;
    line.out = out;
    line.size = 0;
    simpler_log_envelope(&line, mono_ns, thread, SIMPLER_LOG_TIMING);
    SIMPLER_LOG_LITERAL(&line, "emit_host_span: [STRACE] v=1 pid=");
    simpler_log_signed(&line, pid);
    SIMPLER_LOG_LITERAL(&line, " tid=");
    simpler_log_signed(&line, tid);
    SIMPLER_LOG_LITERAL(&line, " inv=");
    simpler_log_decimal(&line, span->inv);
    SIMPLER_LOG_LITERAL(&line, " hid=");
    simpler_log_hex(&line, span->hid);
    SIMPLER_LOG_LITERAL(&line, " depth=");
    simpler_log_signed(&line, span->depth);
    SIMPLER_LOG_LITERAL(&line, " name=");
    if (name_size == 0) {
        simpler_log_byte(&line, '~');
    }
    simpler_log_escaped(&line, span->name, name_size, SIMPLER_LOG_NAME_BYTES, 1);
    SIMPLER_LOG_LITERAL(&line, " ts=");
    simpler_log_signed(&line, span->ts);
    SIMPLER_LOG_LITERAL(&line, " dur=");
    simpler_log_signed(&line, span->dur);
    simpler_log_byte(&line, ' ');
    if (span->attrs != NULL) {
        simpler_log_escaped(&line, span->attrs, attrs_size, SIMPLER_LOG_ATTRS_BYTES, 0);
    }
    return simpler_log_finish(&line);
}

/* Copies a span into a frame, which the writer renders, and gives its size. Layout: docs/abi.md. */
static inline size_t simpler_log_encode_frame(char *out, int64_t mono_ns, uint64_t thread, int32_t pid,
                                              int64_t tid, const SimplerHostSpan *span) {
    size_t name_size = simpler_log_length(span->name, SIMPLER_LOG_RAW_NAME_BYTES);
    size_t attrs_size =
        span->attrs == NULL ? 0 : simpler_log_length(span->attrs, SIMPLER_LOG_RAW_ATTRS_BYTES);
    out[0] = SIMPLER_LOG_SPAN_FRAME;
    out[1] = (char)name_size;
    out[2] = (char)attrs_size;
    out[3] = 0;
    memcpy(out + 4, &pid, sizeof pid);
    memcpy(out + 8, &tid, sizeof tid);
    memcpy(out + 16, &mono_ns, sizeof mono_ns);
    memcpy(out + 24, &thread, sizeof thread);
    memcpy(out + 32, &span->inv, sizeof span->inv);
    memcpy(out + 40, &span->hid, sizeof span->hid);
    memcpy(out + 48, &span->ts, sizeof span->ts);
    memcpy(out + 56, &span->dur, sizeof span->dur);
    memcpy(out + 64, &span->depth, sizeof span->depth);
    memcpy(out + SIMPLER_LOG_FRAME_HEAD_BYTES, span->name, name_size);
    if (attrs_size != 0) {
        memcpy(out + SIMPLER_LOG_FRAME_HEAD_BYTES + name_size, span->attrs, attrs_size);
    }
    return SIMPLER_LOG_FRAME_HEAD_BYTES + name_size + attrs_size;
}

#endif /* SIMPLER_HOST_STRACE */

/* ---- The destination, while there is no writer ---------------------------------------------------------- */

/* Counts one lost record: in the total and under exactly one reason. */
static inline void simpler_log_count_drop(SimplerHostLogState *state, int reason) {
    __atomic_fetch_add(&state->dropped_by_reason[reason], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&state->dropped_record_count, 1, __ATOMIC_RELAXED);
}

static inline int simpler_log_is_directory_bound(SimplerHostLogState *state) {
    return __atomic_load_n(&state->log_directory_bound, __ATOMIC_ACQUIRE) == 1;
}

/* Writes all of it, over interruptions and short writes, and gives how much was taken. */
SIMPLER_LOG_SHARED size_t simpler_log_write_all(int descriptor, const char *bytes, size_t size);
SIMPLER_LOG_SHARED size_t simpler_log_write_all(int descriptor, const char *bytes, size_t size) {
    size_t written = 0;
    while (written < size) {
        long taken = simpler_log_sys_write(descriptor, bytes + written, size - written);
        if (taken > 0) {
            written += (size_t)taken;
        } else if (taken < 0 && errno == EAGAIN) {
            /* Somebody made it non-blocking: wait as a blocking one would. */
            struct simpler_log_pollfd entry = {descriptor, SIMPLER_LOG_POLLOUT, 0};
            int ready = simpler_log_sys_poll(&entry, 1, -1);
            if ((ready < 0 && errno != EINTR) || (ready > 0 && (entry.revents & SIMPLER_LOG_POLLOUT) == 0)) {
                break;
            }
        } else if (taken == 0 || errno != EINTR) {
            break;
        }
    }
    return written;
}

/* Takes the lock of an open log file. Bounded, since a signal handler may log while its own thread holds it. */
static inline int simpler_log_lock(int descriptor) {
    int waited_ms = 0, is_locked;
    while (!(is_locked = simpler_log_sys_flock(descriptor, SIMPLER_LOG_LOCK_EX | SIMPLER_LOG_LOCK_NB) == 0) &&
           (errno == EAGAIN || errno == EINTR) && waited_ms < SIMPLER_LOG_PATIENCE_MS) {
        simpler_log_sys_poll(NULL, 0, 1);
        waited_ms++;
    }
    return is_locked;
}

/* By name, not by closing: a child forked meanwhile shares it. */
static inline void simpler_log_unlock(int descriptor) { simpler_log_sys_flock(descriptor, SIMPLER_LOG_LOCK_UN); }

/* Takes back the last `written` bytes that a descriptor wrote to its file, unless somebody wrote behind them. */
SIMPLER_LOG_SHARED void simpler_log_cut_back(int descriptor, size_t written);
SIMPLER_LOG_SHARED void simpler_log_cut_back(int descriptor, size_t written) {
    /* In append mode the offset is the end of the last write. */
    long end = simpler_log_sys_lseek(descriptor, 0, SIMPLER_LOG_SEEK_CUR);
    long file_size = simpler_log_sys_lseek(descriptor, 0, SIMPLER_LOG_SEEK_END);
    long whole = end - (long)written;
    if (end >= 0) {
        /* Should it fail, the torn record stays; the reader counts it. */
        int is_cut = end == file_size && whole >= 0 && simpler_log_sys_ftruncate(descriptor, whole) == 0;
        /* Without append mode the next write would leave a hole. */
        simpler_log_sys_lseek(descriptor, is_cut ? whole : end, SIMPLER_LOG_SEEK_SET);
    }
}

/* Writes one record to a file, whole or not at all: what a failed write left of it is cut off again. The file's lock
 * keeps others from appending in between; where it is not to be had, nothing is cut, for the bytes behind could be
 * somebody else's. */
static inline int simpler_log_append(int descriptor, int is_locked, const char *record, size_t size) {
    size_t written = simpler_log_write_all(descriptor, record, size);
    if (written != size && written != 0 && is_locked) {
        simpler_log_cut_back(descriptor, written);
    }
    return written == size;
}

/* What a descriptor, or else a path, means just now; 0 for nothing that the kernel tells. */
static inline int simpler_log_look_at(int descriptor, const char *path, struct simpler_log_statx *found) {
    long folder = descriptor < 0 ? (long)SIMPLER_LOG_AT_CWD : (long)descriptor;
    long flags = descriptor < 0 ? 0l : (long)SIMPLER_LOG_AT_EMPTY_PATH;
    memset(found, 0, sizeof *found);
    return simpler_log_sys_syscall(SIMPLER_LOG_SYS_STATX, folder, path, flags,
                                   (long)SIMPLER_LOG_STATX_TYPE_AND_INODE, found) == 0;
}

/* As simpler_log_append, to stderr, which may be a file, too. It is locked for a cut only. */
SIMPLER_LOG_SHARED int simpler_log_write_stderr(const char *record, size_t size);
SIMPLER_LOG_SHARED int simpler_log_write_stderr(const char *record, size_t size) {
    size_t written = simpler_log_write_all(SIMPLER_LOG_STDERR, record, size);
    struct simpler_log_statx found;
    if (written != size && written != 0 && simpler_log_look_at(SIMPLER_LOG_STDERR, "", &found) &&
        (found.mode & SIMPLER_LOG_MODE_TYPE) == SIMPLER_LOG_MODE_REGULAR && simpler_log_lock(SIMPLER_LOG_STDERR)) {
        simpler_log_cut_back(SIMPLER_LOG_STDERR, written);
        simpler_log_unlock(SIMPLER_LOG_STDERR);
    }
    return written == size;
}

enum { SIMPLER_LOG_PATH_BYTES = SIMPLER_LOG_DIRECTORY_BYTES + SIMPLER_LOG_RECORD_BYTES }; /* a path, then a line */

/* The log file of a process: <directory>/host.<pid>.log. */
SIMPLER_LOG_SHARED void simpler_log_path(SimplerHostLogState *state, int32_t pid, char *path);
SIMPLER_LOG_SHARED void simpler_log_path(SimplerHostLogState *state, int32_t pid, char *path) {
    size_t length = simpler_log_length(state->log_directory, SIMPLER_LOG_DIRECTORY_BYTES - 1);
    simpler_log_line name;
    memcpy(path, state->log_directory, length);
    name.out = path + length;
    name.size = 0;
    SIMPLER_LOG_LITERAL(&name, "/host.");
    simpler_log_signed(&name, pid);
    SIMPLER_LOG_LITERAL(&name, ".log");
    name.out[name.size] = 0;
}

/* Opens the process's log file, and notes it for a child that is forked meanwhile. It stays noted when it is closed: the
 * kernel copies the descriptors before it copies the memory, so a file can be open in a child that was closed in its
 * memory. */
SIMPLER_LOG_SHARED int simpler_log_open(SimplerHostLogState *state, int32_t pid);
SIMPLER_LOG_SHARED int simpler_log_open(SimplerHostLogState *state, int32_t pid) {
    char path[SIMPLER_LOG_PATH_BYTES];
    int descriptor;
    simpler_log_path(state, pid, path);
    __atomic_store_n(&simpler_log_module.files_pid, pid, __ATOMIC_RELAXED);
    __atomic_fetch_add(&simpler_log_module.files_opening, 1, __ATOMIC_ACQ_REL);
    descriptor = simpler_log_sys_open(path, SIMPLER_LOG_OPEN_APPEND, 0666);
    if (descriptor >= 0 && descriptor < SIMPLER_LOG_DESCRIPTORS) {
        __atomic_fetch_or(&simpler_log_module.files[descriptor / 64], UINT64_C(1) << (descriptor % 64),
                          __ATOMIC_RELAXED);
    }
    __atomic_fetch_sub(&simpler_log_module.files_opening, 1, __ATOMIC_ACQ_REL);
    return descriptor;
}

/* Whether a descriptor is one that a module opened of the file `log`. */
static inline int simpler_log_means(int descriptor, const struct simpler_log_statx *log) {
    struct simpler_log_statx found;
    int flags = simpler_log_sys_fcntl(descriptor, SIMPLER_LOG_GET_FLAGS);
    return flags >= 0 && (flags & SIMPLER_LOG_FLAGS_ASKED_FOR) == SIMPLER_LOG_FLAGS_OF_A_LOG &&
           simpler_log_look_at(descriptor, "", &found) && found.inode == log->inode &&
           found.dev_major == log->dev_major && found.dev_minor == log->dev_minor;
}

/* In a child: closes what it inherited of the files that threads of process `parent` wrote by themselves. */
SIMPLER_LOG_SHARED void simpler_log_close_inherited(SimplerHostLogState *state, int32_t parent);
SIMPLER_LOG_SHARED void simpler_log_close_inherited(SimplerHostLogState *state, int32_t parent) {
    char path[SIMPLER_LOG_PATH_BYTES];
    struct simpler_log_statx log;
    int descriptor, is_there;
    uint64_t all;
    if (!__atomic_compare_exchange_n(&simpler_log_module.files_pid, &parent, 0, 0, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED)) {
        return;
    }
    /* Somebody was about to note one: it may be any. */
    all = __atomic_exchange_n(&simpler_log_module.files_opening, 0, __ATOMIC_ACQ_REL) != 0 ? UINT64_MAX : 0;
    simpler_log_path(state, parent, path);
    is_there = simpler_log_look_at(-1, path, &log);
    for (descriptor = 0; descriptor < SIMPLER_LOG_DESCRIPTORS; descriptor += 64) {
        uint64_t bits = __atomic_exchange_n(&simpler_log_module.files[descriptor / 64], 0, __ATOMIC_ACQUIRE) | all;
        for (; bits != 0; bits &= bits - 1) {
            int inherited = descriptor + __builtin_ctzll(bits);
            if (is_there && simpler_log_means(inherited, &log)) {
                simpler_log_sys_close(inherited);
            }
        }
    }
}

/* A clock anchor's readings. */
typedef struct simpler_log_anchor {
    int32_t pid;
    int64_t mono_ns;
    int64_t wall_ns;
    uint64_t thread;
} simpler_log_anchor;

/* An anchor landed on stderr: whoever opens a file later repeats it there. */
static inline void simpler_log_note_anchor(SimplerHostLogState *state, const simpler_log_anchor *anchor) {
    __atomic_store_n(&state->anchor_mono_ns, anchor->mono_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&state->anchor_wall_ns, anchor->wall_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&state->anchor_thread, anchor->thread, __ATOMIC_RELAXED);
    __atomic_store_n(&state->anchor_stderr_pid, anchor->pid, __ATOMIC_RELEASE);
}

/* Writes the anchor that went to stderr before the directory was bound, if there is one, to a file that is locked, so
 * that nobody appends before it. Gives 0 if the file does not take it. */
SIMPLER_LOG_SHARED int simpler_log_repeat_anchor(SimplerHostLogState *state, int32_t pid, int descriptor,
                                                 int is_locked);
SIMPLER_LOG_SHARED int simpler_log_repeat_anchor(SimplerHostLogState *state, int32_t pid, int descriptor,
                                                 int is_locked) {
    char record[SIMPLER_LOG_RECORD_BYTES];
    int32_t word = pid;
    int64_t mono_ns;
    size_t size;
    if (__atomic_load_n(&state->anchor_stderr_pid, __ATOMIC_RELAXED) != pid ||
        !__atomic_compare_exchange_n(&state->anchor_stderr_pid, &word, 0, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return 1;
    }
    mono_ns = __atomic_load_n(&state->anchor_mono_ns, __ATOMIC_RELAXED);
    size = simpler_log_encode_anchor(record, mono_ns, __atomic_load_n(&state->anchor_thread, __ATOMIC_RELAXED), pid,
                                     mono_ns, __atomic_load_n(&state->anchor_wall_ns, __ATOMIC_RELAXED));
    if (simpler_log_append(descriptor, is_locked, record, size)) {
        return 1;
    }
    __atomic_store_n(&state->anchor_stderr_pid, pid, __ATOMIC_RELEASE);
    return 0;
}

/* Writes one rendered record where records go while there is no writer. Gives whether it landed. `anchor` are the
 * readings if it is the anchor, else NULL. */
SIMPLER_LOG_SHARED int simpler_log_put_out(SimplerHostLogState *state, const char *record, size_t size,
                                           const simpler_log_anchor *anchor);
SIMPLER_LOG_SHARED int simpler_log_put_out(SimplerHostLogState *state, const char *record, size_t size,
                                           const simpler_log_anchor *anchor) {
    int32_t pid = simpler_log_pid();
    int descriptor, is_locked, landed;
    if (!simpler_log_is_directory_bound(state)) {
        landed = simpler_log_write_stderr(record, size);
        if (landed && anchor != NULL) {
            simpler_log_note_anchor(state, anchor);
        }
        return landed;
    }
    descriptor = simpler_log_open(state, pid);
    if (descriptor < 0) {
        return 0;
    }
    is_locked = simpler_log_lock(descriptor);
    landed = simpler_log_repeat_anchor(state, pid, descriptor, is_locked) &&
             simpler_log_append(descriptor, is_locked, record, size);
    if (is_locked) {
        simpler_log_unlock(descriptor);
    }
    simpler_log_sys_close(descriptor);
    return landed;
}

/* As simpler_log_put_out. A reader that has gone and a file at its limit are lost records, and shall not end the
 * process: the two signals are held back meanwhile, and those that came of it are taken away. Nor is the thread
 * cancelled meanwhile: it would leave the file open and locked. */
SIMPLER_LOG_SHARED int simpler_log_write_out(SimplerHostLogState *state, const char *record, size_t size,
                                             const simpler_log_anchor *anchor);
SIMPLER_LOG_SHARED int simpler_log_write_out(SimplerHostLogState *state, const char *record, size_t size,
                                             const simpler_log_anchor *anchor) {
    const unsigned long ours = (1ul << (SIMPLER_LOG_SIGPIPE - 1)) | (1ul << (SIMPLER_LOG_SIGXFSZ - 1));
    const struct simpler_log_timespec no_time = {0, 0};
    simpler_log_signals held, former, earlier;
    int landed, cancel_state = 0, is_held;
    memset(&held, 0, sizeof held);
    memset(&earlier, 0, sizeof earlier);
    held.words[0] = ours;
    simpler_log_sys_setcancelstate(SIMPLER_LOG_CANCEL_DISABLED, &cancel_state);
    is_held = simpler_log_sys_sigprocmask(SIMPLER_LOG_SIG_BLOCK, &held, &former) == 0;
    if (is_held) {
        simpler_log_sys_sigpending(&earlier);
    }
    landed = simpler_log_put_out(state, record, size, anchor);
    if (is_held) {
        held.words[0] = ours & ~earlier.words[0];
        if (!landed && held.words[0] != 0) {
            while (simpler_log_sys_sigtimedwait(&held, NULL, &no_time) > 0) {
            }
        }
        simpler_log_sys_sigprocmask(SIMPLER_LOG_SIG_SETMASK, &former, NULL);
    }
    simpler_log_sys_setcancelstate(cancel_state, &cancel_state);
    return landed;
}

/* ---- Submission ------------------------------------------------------------------------------------------ */

/* Where a record goes just now. */
typedef enum simpler_log_way {
    SIMPLER_LOG_REFUSED,     /* nowhere: a writer is being started or stopped, or it is another process's */
    SIMPLER_LOG_SYNCHRONOUS, /* to the destination: before the first start, and from a quiesce to the next start */
    SIMPLER_LOG_QUEUED       /* to the owner's callback */
} simpler_log_way;

/* The four looks are no snapshot; a record at the edge may be taken either way. */
static inline simpler_log_way simpler_log_way_now(SimplerHostLogState *state, int32_t pid) {
    int32_t owner = __atomic_load_n(&state->sink_owner_pid, __ATOMIC_ACQUIRE);
    int has_callback = __atomic_load_n(&state->sink_enqueue, __ATOMIC_ACQUIRE) != NULL;
    int has_context = __atomic_load_n(&state->sink_context, __ATOMIC_ACQUIRE) != NULL;
    if ((__atomic_load_n(&state->sink_producer_state, __ATOMIC_ACQUIRE) & SIMPLER_PRODUCERS_CLOSED) != 0) {
        return SIMPLER_LOG_REFUSED;
    }
    return owner == 0 && !has_callback && !has_context    ? SIMPLER_LOG_SYNCHRONOUS
           : owner == pid && has_callback && has_context ? SIMPLER_LOG_QUEUED
                                                         : SIMPLER_LOG_REFUSED;
}

/* Writes a rendered record on this thread. A loss is counted. */
static inline int simpler_log_write_synchronously(SimplerHostLogState *state, const char *record, size_t size,
                                                  const simpler_log_anchor *anchor) {
    int landed = simpler_log_write_out(state, record, size, anchor);
    if (!landed) {
        simpler_log_count_drop(state, SIMPLER_DROP_OUTPUT_FAILED);
    }
    return landed;
}

/* Hands a record to the sink. A loss is counted, and counted before this thread leaves the section: a quiesce
 * that has seen everybody leave has every count. */
static inline int simpler_log_enqueue(SimplerHostLogState *state, int32_t pid, const char *record, size_t size,
                                      int32_t anchor_pid) {
    uint64_t before = __atomic_fetch_add(&state->sink_producer_state, 1, __ATOMIC_ACQUIRE);
    if ((before & SIMPLER_PRODUCERS_CLOSED) == 0 &&
        __atomic_load_n(&state->sink_owner_pid, __ATOMIC_ACQUIRE) == pid) {
        SimplerHostLogEnqueueFn enqueue = __atomic_load_n(&state->sink_enqueue, __ATOMIC_ACQUIRE);
        void *context = __atomic_load_n(&state->sink_context, __ATOMIC_ACQUIRE);
        if (enqueue != NULL && context != NULL) {
            return enqueue(context, state, record, (uint32_t)size, anchor_pid) != 0; /* it leaves */
        }
    }
    simpler_log_count_drop(state, SIMPLER_DROP_NOT_ADMITTED);
    __atomic_fetch_sub(&state->sink_producer_state, 1, __ATOMIC_ACQ_REL);
    return 0;
}

/* Sets the anchor's word from one value to another, unless it has become a third. */
static inline int simpler_log_turn_anchor(SimplerHostLogState *state, int32_t from, int32_t to) {
    return __atomic_compare_exchange_n(&state->clock_anchor_pid, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Emits the process's clock anchor, once; a lost one is tried again by the next record. The word is 0
 * (nobody), -pid (somebody is at it) or pid (done); a fork child finds one that is not about itself. */
SIMPLER_LOG_SHARED void simpler_log_emit_anchor(SimplerHostLogState *state, int32_t pid);
SIMPLER_LOG_SHARED void simpler_log_emit_anchor(SimplerHostLogState *state, int32_t pid) {
    char record[SIMPLER_LOG_RECORD_BYTES];
    simpler_log_anchor anchor;
    simpler_log_way way = simpler_log_way_now(state, pid);
    int32_t word = __atomic_load_n(&state->clock_anchor_pid, __ATOMIC_RELAXED);
    size_t size;
    if (way == SIMPLER_LOG_REFUSED) {
        return; /* It would be lost, and counted, too. Whoever starts the writer emits it first of all. */
    }
    do {
        if (word == pid || word == -pid) {
            int yields = 0;
            while (way == SIMPLER_LOG_SYNCHRONOUS && yields < SIMPLER_LOG_ANCHOR_YIELDS &&
                   __atomic_load_n(&state->clock_anchor_pid, __ATOMIC_ACQUIRE) == -pid) {
                simpler_log_sys_sched_yield();
                yields++;
            }
            return;
        }
    } while (!__atomic_compare_exchange_n(&state->clock_anchor_pid, &word, -pid, 0, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    anchor.pid = pid;
    anchor.mono_ns = simpler_log_monotonic_ns();
    anchor.wall_ns = simpler_log_clock_ns(SIMPLER_LOG_CLOCK_REALTIME);
    anchor.thread = simpler_log_sys_pthread_self();
    size = simpler_log_encode_anchor(record, anchor.mono_ns, anchor.thread, pid, anchor.mono_ns, anchor.wall_ns);
    if (way == SIMPLER_LOG_SYNCHRONOUS) {
        simpler_log_turn_anchor(state, -pid,
                                simpler_log_write_synchronously(state, record, size, &anchor) ? pid : 0);
    } else if (simpler_log_turn_anchor(state, -pid, pid) &&
               /* Done before it is handed in: should the writer lose it, the writer's 0 is the last word. */
               !simpler_log_enqueue(state, pid, record, size, pid)) {
        simpler_log_turn_anchor(state, pid, 0);
    }
}

/* What comes before each record that is let through. Gives the pid. */
static inline int32_t simpler_log_begin_record(SimplerHostLogState *state) {
    int32_t pid = simpler_log_pid();
    int32_t files_pid = __atomic_load_n(&simpler_log_module.files_pid, __ATOMIC_RELAXED);
    if (files_pid != 0 && files_pid != pid) {
        simpler_log_close_inherited(state, files_pid);
    }
    if (__atomic_load_n(&state->clock_anchor_pid, __ATOMIC_RELAXED) != pid &&
        simpler_log_is_heard_by(state, SIMPLER_LOG_TIMING)) {
        simpler_log_emit_anchor(state, pid);
    }
    return pid;
}

/* ---- The bodies of the functions ------------------------------------------------------------------------- */

SIMPLER_LOG_SHARED void simpler_log_emit_text(int32_t level, const char *func, const char *file, int line_number,
                                              const char *fmt, va_list arguments);
SIMPLER_LOG_SHARED void simpler_log_emit_text(int32_t level, const char *func, const char *file, int line_number,
                                              const char *fmt, va_list arguments) {
    SimplerHostLogState *state = simpler_log_state();
    int saved_errno = errno, length;
    char record[SIMPLER_LOG_RECORD_BYTES];
    /* A body that does not fit this does not fit the record either. */
    char body[SIMPLER_LOG_RECORD_BYTES + 1];
    const char *base;
    int32_t pid;
    size_t size;
    level = simpler_log_round_record(level);
    if (!simpler_log_is_heard_by(state, level)) {
        return;
    }
    pid = simpler_log_begin_record(state);
    body[0] = 0;
    errno = saved_errno; /* for %m */
    length = vsnprintf(body, sizeof body, fmt == NULL ? "(null)" : fmt, arguments);
    size = length < 0                       ? simpler_log_length(body, sizeof body - 1)
           : (size_t)length >= sizeof body ? sizeof body - 1
                                            : (size_t)length;
    if (file != NULL && (base = strrchr(file, '/')) != NULL) {
        file = base + 1;
    }
    size = simpler_log_encode_text(record, simpler_log_monotonic_ns(), simpler_log_sys_pthread_self(), level,
                                   func == NULL ? "?" : func, file, line_number, body, size, length < 0);
    if (simpler_log_way_now(state, pid) == SIMPLER_LOG_SYNCHRONOUS) {
        simpler_log_write_synchronously(state, record, size, NULL);
    } else {
        simpler_log_enqueue(state, pid, record, size, 0);
    }
    errno = saved_errno;
}

SIMPLER_LOG_SHARED void unified_log_at(int32_t level, const char *func, const char *file, int line,
                                       const char *fmt, ...) {
    va_list arguments;
    va_start(arguments, fmt);
    simpler_log_emit_text(level, func, file, line, fmt, arguments);
    va_end(arguments);
}

#define SIMPLER_LOG_DEFINE(name, level)                                          \
    SIMPLER_LOG_SHARED void name(const char *func, const char *fmt, ...) {       \
        va_list arguments;                                                       \
        va_start(arguments, fmt);                                                \
        simpler_log_emit_text((level), func, NULL, 0, fmt, arguments);           \
        va_end(arguments);                                                       \
    }
SIMPLER_LOG_DEFINE(unified_log_error, SIMPLER_LOG_ERROR)
SIMPLER_LOG_DEFINE(unified_log_warn, SIMPLER_LOG_WARN)
SIMPLER_LOG_DEFINE(unified_log_timing, SIMPLER_LOG_TIMING)
SIMPLER_LOG_DEFINE(unified_log_info, SIMPLER_LOG_INFO)
SIMPLER_LOG_DEFINE(unified_log_debug, SIMPLER_LOG_DEBUG)
#undef SIMPLER_LOG_DEFINE

#if SIMPLER_HOST_STRACE

static inline int unified_log_host_span_enabled(void) { return simpler_log_is_heard(SIMPLER_LOG_TIMING); }

SIMPLER_LOG_SHARED void simpler_log_emit_span(SimplerHostLogState *state, int64_t mono_ns,
                                              const SimplerHostSpan *span);
SIMPLER_LOG_SHARED void simpler_log_emit_span(SimplerHostLogState *state, int64_t mono_ns,
                                              const SimplerHostSpan *span) {
    int saved_errno = errno;
    char record[SIMPLER_LOG_RECORD_BYTES];
    uint64_t thread;
    int32_t pid;
    size_t size;
    /* Asked again: the threshold may have changed since the span was entered. */
    if (!simpler_log_is_heard_by(state, SIMPLER_LOG_TIMING) || span->name == NULL || span->name[0] == 0) {
        return;
    }
    pid = simpler_log_begin_record(state);
    thread = simpler_log_sys_pthread_self();
    if (simpler_log_way_now(state, pid) == SIMPLER_LOG_SYNCHRONOUS) {
        int64_t tid = simpler_log_sys_syscall(SIMPLER_LOG_SYS_GETTID);
        size = simpler_log_encode_span(record, mono_ns, thread, pid, tid, span);
        simpler_log_write_synchronously(state, record, size, NULL);
    } else {
        /* The callee fills in pid and tid. */
        size = simpler_log_encode_frame(record, mono_ns, thread, 0, 0, span);
        simpler_log_enqueue(state, pid, record, size, 0);
    }
    errno = saved_errno;
}

SIMPLER_LOG_SHARED void unified_log_host_span(const SimplerHostSpan *span) {
    SimplerHostLogState *state = simpler_log_state();
    if (span != NULL && simpler_log_is_heard_by(state, SIMPLER_LOG_TIMING)) {
        simpler_log_emit_span(state, simpler_log_monotonic_ns(), span);
    }
}

#endif /* SIMPLER_HOST_STRACE */

/* A gate that is closed although nobody owns a sink. */
static inline int simpler_log_is_shut(SimplerHostLogState *state) {
    return (__atomic_load_n(&state->sink_producer_state, __ATOMIC_ACQUIRE) & SIMPLER_PRODUCERS_CLOSED) != 0 &&
           __atomic_load_n(&state->sink_owner_pid, __ATOMIC_ACQUIRE) == 0;
}

static inline int simpler_log_is_being_worked_on(SimplerHostLogState *state, int32_t pid) {
    return __atomic_load_n(&state->clock_anchor_pid, __ATOMIC_ACQUIRE) == -pid ||
           __atomic_load_n(&state->log_directory_bound, __ATOMIC_ACQUIRE) == -1 || simpler_log_is_shut(state);
}

/* Puts right what the module will branch on and nobody else would: see simpler_host_log_bind_state. */
SIMPLER_LOG_SHARED void simpler_log_sanitise(SimplerHostLogState *state);
SIMPLER_LOG_SHARED void simpler_log_sanitise(SimplerHostLogState *state) {
    int32_t pid = simpler_log_sys_getpid(), anchor, bound, waited_ms;
    /* Three words say that somebody is at it: the anchor's claim, a directory that is being written, a gate that
     * is closed without an owner. Whoever it is is done in a moment; what stays is nobody's, and would keep out
     * the anchor, every directory, or every record for ever. */
    for (waited_ms = 0; waited_ms < SIMPLER_LOG_PATIENCE_MS && simpler_log_is_being_worked_on(state, pid); waited_ms++) {
        simpler_log_sys_poll(NULL, 0, 1);
    }
    anchor = -pid;
    __atomic_compare_exchange_n(&state->clock_anchor_pid, &anchor, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (simpler_log_is_shut(state)) {
        __atomic_fetch_and(&state->sink_producer_state, ~SIMPLER_PRODUCERS_CLOSED, __ATOMIC_ACQ_REL);
    }
    /* An anchor on stderr that this process has not made: its readings would be anything. */
    anchor = __atomic_load_n(&state->clock_anchor_pid, __ATOMIC_ACQUIRE);
    if (anchor != pid && anchor != -pid) {
        anchor = pid;
        __atomic_compare_exchange_n(&state->anchor_stderr_pid, &anchor, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    bound = __atomic_load_n(&state->log_directory_bound, __ATOMIC_ACQUIRE);
    if (bound == 1 && state->log_directory[0] != 0) {
        /* Readers stop here in any case. */
        if (simpler_log_length(state->log_directory, SIMPLER_LOG_DIRECTORY_BYTES) == SIMPLER_LOG_DIRECTORY_BYTES) {
            state->log_directory[SIMPLER_LOG_DIRECTORY_BYTES - 1] = 0;
        }
    } else if (bound != 0) {
        /* None of the three values, bound without a path, or still being written. */
        __atomic_compare_exchange_n(&state->log_directory_bound, &bound, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

SIMPLER_LOG_SHARED int simpler_host_log_adopt(SimplerHostLogState *state) {
    int saved_errno = errno;
    if (state == NULL) {
        return SIMPLER_BIND_NULL_STATE;
    }
    if (!simpler_log_is_threshold(__atomic_load_n(&state->threshold, __ATOMIC_RELAXED))) {
        return SIMPLER_BIND_OFF_LADDER;
    }
    simpler_log_sanitise(state);
    /* Where pages are larger or the kernel is older every pid is a syscall, which is only slower. */
    if (simpler_log_sys_getauxval(SIMPLER_LOG_AUX_PAGE_BYTES) <= SIMPLER_LOG_PAGE_BYTES &&
        simpler_log_sys_madvise(simpler_log_wiped_page, SIMPLER_LOG_PAGE_BYTES, SIMPLER_LOG_MADV_WIPEONFORK) == 0) {
        __atomic_store_n(&simpler_log_module.has_wiped_page, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&simpler_log_module.state, state, __ATOMIC_RELEASE);
    __atomic_store_n(&simpler_log_module.threshold, &state->threshold, __ATOMIC_RELEASE);
    errno = saved_errno;
    return SIMPLER_BIND_OK;
}

__attribute__((weak, visibility("default"))) int simpler_host_log_bind_state(SimplerHostLogState *state) {
    return simpler_host_log_adopt(state);
}

#ifdef __cplusplus
}
#endif

#endif
