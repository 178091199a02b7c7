// How often a log says the same thing.
//
// The first line on a subject is written at once. Then there is a pause, in which lines on it are
// counted; the first one after the pause is written, with their number and the time that they took.
// The pause doubles each time, up to kLongestPause: a failure that goes on for a day takes some 150
// lines, however often it comes. What was counted last is written by Due() when the pause is over,
// though nothing more comes. A subject on which nothing came for a pause is new again.
//
// What a subject is says the caller: what failed and why, without the parts that are different each
// time. Lines on other subjects are not held back: subjects do not share a pause.
#ifndef POSTBOX_EXTENSION_RULES_REPEAT_LIMIT_H_
#define POSTBOX_EXTENSION_RULES_REPEAT_LIMIT_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace postbox {

// `What` is a line, or what one is made of.
template <class What>
class RepeatLimitOf {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kFirstPause{10};
  static constexpr std::chrono::seconds kLongestPause{600};
  // Of more subjects at once, the one that is quiet for longest is forgotten.
  static constexpr std::size_t kMaxSubjects = 200;

  // A line to be written.
  struct Line {
    What text;
    std::int64_t repeated = 0;     // so many like it were not written
    std::chrono::seconds over{0};  // in so many seconds

    // "repeated 12 times in the last 60 s", or empty.
    std::string Count() const {
      if (repeated == 0) return "";
      return "repeated " + std::to_string(repeated) + (repeated == 1 ? " time" : " times") +
             " in the last " + std::to_string(std::max<std::int64_t>(over.count(), 1)) + " s";
    }
  };

  // So many lines on a subject are written before those of a pause are counted.
  explicit RepeatLimitOf(int burst = 1, std::chrono::milliseconds first_pause = kFirstPause)
      : burst_(burst), first_pause_(first_pause) {}

  // The line to write now, if any. It happened `times` times at once.
  std::optional<Line> Note(const std::string& subject, What text, Clock::time_point now,
                           std::int64_t times = 1) {
    const auto found = subjects_.find(subject);
    if (found == subjects_.end() || IsOver(found->second, now)) {
      if (found == subjects_.end()) MakeRoom();
      subjects_[subject] = Subject{now, now, first_pause_, 0, 1, What()};
      return Line{std::move(text), times - 1};
    }
    Subject& known = found->second;
    known.last_at = now;
    if (known.repeated == 0 && known.lines < burst_) {
      ++known.lines;
      return Line{std::move(text), times - 1};
    }
    known.repeated += times;
    known.text = std::move(text);
    if (now - known.written_at < known.pause) return std::nullopt;
    return Write(&known, now);
  }

  // What was counted and whose pause is over. To be called now and then.
  std::vector<Line> Due(Clock::time_point now) {
    std::vector<Line> lines;
    for (auto it = subjects_.begin(); it != subjects_.end();) {
      Subject& subject = it->second;
      if (subject.repeated > 0 && now - subject.written_at >= subject.pause) {
        lines.push_back(Write(&subject, now));
      }
      it = IsOver(subject, now) ? subjects_.erase(it) : std::next(it);
    }
    return lines;
  }
  // All that was counted: nothing is noted any more.
  std::vector<Line> TakeAll(Clock::time_point now) {
    std::vector<Line> lines;
    for (auto& [name, subject] : subjects_) {
      if (subject.repeated > 0) lines.push_back(Write(&subject, now));
    }
    subjects_.clear();
    return lines;
  }

  // When Due() has something to write; the end of time if nothing was counted.
  Clock::time_point DueAt() const {
    Clock::time_point due = Clock::time_point::max();
    for (const auto& [name, subject] : subjects_) {
      if (subject.repeated > 0) due = std::min(due, subject.written_at + subject.pause);
    }
    return due;
  }

 private:
  struct Subject {
    Clock::time_point written_at;
    Clock::time_point last_at;
    std::chrono::milliseconds pause{0};
    std::int64_t repeated = 0;  // since it was written
    int lines = 0;              // since then
    What text;                  // of the last of them
  };

  bool IsOver(const Subject& subject, Clock::time_point now) const {
    return subject.repeated == 0 &&
           now - std::max(subject.last_at, subject.written_at) >= subject.pause + first_pause_;
  }

  static Line Write(Subject* subject, Clock::time_point now) {
    Line line{std::move(subject->text), subject->repeated,
              std::chrono::duration_cast<std::chrono::seconds>(now - subject->written_at)};
    subject->repeated = 0;
    subject->written_at = now;
    subject->lines = 1;
    subject->pause = std::min<std::chrono::milliseconds>(subject->pause * 2, kLongestPause);
    return line;
  }

  void MakeRoom() {
    if (subjects_.size() < kMaxSubjects) return;
    subjects_.erase(std::min_element(
        subjects_.begin(), subjects_.end(),
        [](const auto& a, const auto& b) { return a.second.last_at < b.second.last_at; }));
  }

  int burst_;
  std::chrono::milliseconds first_pause_;
  std::map<std::string, Subject> subjects_;
};
using RepeatLimit = RepeatLimitOf<std::string>;

// A subject of an error text: without its numbers, which may be a process, a time or a count, and
// not all of it.
inline std::string SubjectOf(std::string_view text) {
  constexpr std::size_t kMax = 200;
  std::string subject;
  for (const char c : text.substr(0, kMax)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) subject += c;
    if (digit && (subject.empty() || subject.back() != '#')) subject += '#';
  }
  return subject;
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_REPEAT_LIMIT_H_
