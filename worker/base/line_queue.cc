#include "worker/base/line_queue.h"

#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "worker/base/write_while.h"

namespace postbox {
namespace {

std::string DroppedText(uint64_t count) {
  return "postbox: " + std::to_string(count) + " lines were dropped, since nothing read them\n";
}

}  // namespace

struct LineQueue::State {
  State(int to, Limits most) : fd(to), limits(most) {}

  // The thread of the queue.
  void Write() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !lines.empty(); });
      if (lines.empty()) return;
      const uint64_t missing = std::exchange(dropped, 0);
      std::string line;
      if (missing > 0) {
        line = dropped_line(missing);
      } else {
        line = std::move(lines.front());
        lines.pop_front();
        bytes -= line.size();
      }
      writing = true;
      lock.unlock();
      const bool written = WriteWhile(fd, line, [] { return true; });
      lock.lock();
      writing = false;
      if (!written) dropped += missing > 0 ? missing : 1;
      if (!written && missing > 0) DropFirst();  // or the same would be tried at once, without end
      changed.notify_all();
    }
  }

  void DropFirst() {
    if (lines.empty()) return;
    bytes -= lines.front().size();
    lines.pop_front();
    ++dropped;
  }

  const int fd;
  const Limits limits;
  std::mutex mutex;
  std::condition_variable changed;
  DroppedLine dropped_line = DroppedText;
  std::deque<std::string> lines;
  std::size_t bytes = 0;  // of `lines`
  uint64_t dropped = 0;   // of which no line has said so
  bool writing = false;
  bool ended = false;
};

LineQueue::LineQueue(int fd) : LineQueue(fd, Limits()) {}

LineQueue::LineQueue(int fd, Limits limits) : state_(std::make_shared<State>(fd, limits)) {
  // The thread takes no signal of the process. SIGPIPE, which is its own, becomes EPIPE.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->Write(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineQueue::~LineQueue() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->ended = true;
  state_->changed.notify_all();
}

void LineQueue::Push(std::string line) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  State& state = *state_;
  state.bytes += line.size();
  state.lines.push_back(std::move(line));
  while (state.lines.size() > 1 &&
         (state.lines.size() > state.limits.lines || state.bytes > state.limits.bytes)) {
    state.DropFirst();
  }
  state.changed.notify_all();
}

void LineQueue::SayDropped(DroppedLine line) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->dropped_line = std::move(line);
}

bool LineQueue::Finish(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout,
                                  [this] { return state_->lines.empty() && !state_->writing; });
}

LineQueue& StandardOutput() {
  static auto& queue = *new LineQueue(STDOUT_FILENO);
  return queue;
}

LineQueue& StandardError() {
  static auto& queue = *new LineQueue(STDERR_FILENO);
  return queue;
}

}  // namespace postbox
