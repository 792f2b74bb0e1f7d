/* The C encoder on vectors of the Rust test: reads requests from stdin, writes records to stdout.
 *
 * A request is: kind u8; mono_ns i64; thread u64; then by kind
 *   't'  level i32, line i32 (-1: no place), texts func, file, body
 *   's', 'f'  pid i32, tid i64, inv u64, hid u64, depth i32, ts i64, dur i64, has_attrs u8, texts name, attrs
 *   'a'  pid i32, anchor_mono_ns i64, anchor_wall_ns i64
 * and a text is its length u32 and its bytes. A record is its length u32 and its bytes. */
#include <stdlib.h>

#include <simpler/strace.h>

static void read_bytes(void *out, size_t size) {
    if (fread(out, 1, size, stdin) != size) {
        abort();
    }
}

#define READ(variable) read_bytes(&(variable), sizeof(variable))

/* A text of its exact size on the heap, so that a sanitizer sees who reads beyond it. */
static char *read_text(size_t *length) {
    uint32_t size = 0;
    char *text;
    READ(size);
    text = (char *)malloc((size_t)size + 1);
    if (text == NULL) {
        abort();
    }
    read_bytes(text, size);
    text[size] = 0;
    *length = size;
    return text;
}

int main(void) {
    int kind;
    while ((kind = getchar()) != EOF) {
        char record[SIMPLER_LOG_RECORD_BYTES];
        int64_t mono_ns = 0;
        uint64_t thread = 0;
        uint32_t size = 0;
        size_t length;
        READ(mono_ns);
        READ(thread);
        if (kind == 't') {
            int32_t level = 0, line = 0;
            char *func, *file, *body;
            READ(level);
            READ(line);
            func = read_text(&length);
            file = read_text(&length);
            body = read_text(&length);
            size = (uint32_t)simpler_log_encode_text(record, mono_ns, thread, level, func, line < 0 ? NULL : file,
                                                     line, body, length, 0);
            free(func);
            free(file);
            free(body);
        } else if (kind == 's' || kind == 'f') {
            SimplerHostSpan span = {0, 0, 0, 0, 0, 0, NULL, NULL};
            int32_t pid = 0;
            int64_t tid = 0;
            unsigned char has_attrs = 0;
            char *name, *attrs;
            READ(pid);
            READ(tid);
            READ(span.inv);
            READ(span.hid);
            READ(span.depth);
            READ(span.ts);
            READ(span.dur);
            READ(has_attrs);
            name = read_text(&length);
            attrs = read_text(&length);
            span.name = name;
            span.attrs = has_attrs ? attrs : NULL;
            size = (uint32_t)(kind == 's' ? simpler_log_encode_span(record, mono_ns, thread, pid, tid, &span)
                                          : simpler_log_encode_frame(record, mono_ns, thread, pid, tid, &span));
            free(name);
            free(attrs);
        } else {
            int32_t pid = 0;
            int64_t anchor_mono_ns = 0, anchor_wall_ns = 0;
            READ(pid);
            READ(anchor_mono_ns);
            READ(anchor_wall_ns);
            size = (uint32_t)simpler_log_encode_anchor(record, mono_ns, thread, pid, anchor_mono_ns, anchor_wall_ns);
        }
        fwrite(&size, sizeof size, 1, stdout);
        fwrite(record, 1, size, stdout);
    }
    return 0;
}
