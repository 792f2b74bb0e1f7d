// spdlog as a peer of the host log: an asynchronous logger behind four C functions.
//
// One thread pool of one thread with a queue of 8192 messages (spdlog's default, twice the host log's) that blocks
// when full (spdlog's default; the alternative overwrites). A span is what spdlog's users write for one: a scope
// that reads the clock at both ends and logs a line with the name and three integers. The file sink is
// spdlog's own file helper; it counts the lines, since spdlog cannot be asked whether it has written everything.

#define SPDLOG_FMT_EXTERNAL
#define FMT_HEADER_ONLY
#include <spdlog/async.h>
#include <spdlog/details/file_helper.h>
#include <spdlog/sinks/base_sink.h>

#include <time.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace {

constexpr std::size_t queue_messages = 8192;

class counting_file_sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    explicit counting_file_sink(const char *path) { file_.open(path, true); }
    std::uint64_t flushed_lines() const { return flushed_lines_.load(std::memory_order_acquire); }

protected:
    void sink_it_(const spdlog::details::log_msg &msg) override {
        spdlog::memory_buf_t line;
        formatter_->format(msg, line);
        file_.write(line);
        ++lines_;
    }
    void flush_() override {
        file_.flush();
        flushed_lines_.store(lines_, std::memory_order_release);
    }

private:
    spdlog::details::file_helper file_;
    std::uint64_t lines_ = 0;
    std::atomic<std::uint64_t> flushed_lines_{0};
};

std::shared_ptr<spdlog::details::thread_pool> pool;
std::shared_ptr<counting_file_sink> sink;
std::shared_ptr<spdlog::async_logger> logger;

std::int64_t monotonic_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

class scope {
public:
    scope(const char *name, std::uint64_t inv) : name_(name), inv_(inv), start_ns_(monotonic_ns()) {}
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() {
        const std::int64_t end_ns = monotonic_ns();
        logger->info("name={} inv={} ts={} dur={}", name_, inv_, start_ns_, end_ns - start_ns_);
    }

private:
    const char *name_;
    std::uint64_t inv_;
    std::int64_t start_ns_;
};

} // namespace

extern "C" {

// Opens the log at `path` and starts the writing thread. Gives 0, or 1 when that failed.
int peer_open(const char *path) {
    try {
        pool = std::make_shared<spdlog::details::thread_pool>(queue_messages, 1);
        sink = std::make_shared<counting_file_sink>(path);
        logger = std::make_shared<spdlog::async_logger>("peer", sink, pool, spdlog::async_overflow_policy::block);
        logger->set_pattern("[%E.%F][T%t][%l] %v");
        return 0;
    } catch (...) {
        return 1;
    }
}

// Opens and closes `spans` spans.
void peer_spans(std::uint64_t spans) {
    for (std::uint64_t number = 0; number < spans; ++number) {
        scope span("simpler_run.bind", number);
    }
}

// Asks the writing thread to flush; a flush is a message behind all lines so far.
void peer_flush(void) { logger->flush(); }

// How many lines were written by the last flush.
std::uint64_t peer_flushed_lines(void) { return sink->flushed_lines(); }

// Ends the writing thread and closes the file.
void peer_close(void) {
    logger.reset();
    pool.reset();
    sink.reset();
}
}
