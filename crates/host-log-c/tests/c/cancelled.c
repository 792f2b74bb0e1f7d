/* A thread that is cancelled inside a log call: its record is there, and its file closed. cancelled DIRECTORY */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>

#include <simpler/unified_log.h>

static SimplerHostLogState state;

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

static void *emit(void *nothing) {
    /* The next call that may be cancelled is. */
    pthread_cancel(pthread_self());
    LOG_WARN("cancelled");
    pthread_testcancel();
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t thread;
    void *end = NULL;
    int before = open_files();
    state.threshold = SIMPLER_LOG_WARN;
    if (count != 2 || simpler_host_log_adopt(&state) != SIMPLER_BIND_OK) {
        return 1;
    }
    strncpy(state.log_directory, arguments[1], sizeof state.log_directory - 1);
    state.log_directory_bound = 1;
    if (pthread_create(&thread, NULL, emit, NULL) != 0 || pthread_join(thread, &end) != 0) {
        return 2;
    }
    if (end != PTHREAD_CANCELED) {
        return 3;
    }
    LOG_WARN("after it");
    return state.dropped_record_count != 0 ? 4 : open_files() != before ? 5 : 0;
}
