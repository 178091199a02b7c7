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
#ifndef POSTBOX_PROTO_RULES_REPEAT_LIMIT_H_
#define POSTBOX_PROTO_RULES_REPEAT_LIMIT_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace postbox {

class RepeatLimit {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kFirstPause{10};
  static constexpr std::chrono::seconds kLongestPause{600};
  // Of more subjects at once, the one that is quiet for longest is forgotten.
  static constexpr std::size_t kMaxSubjects = 200;

  // A line to be written.
  struct Line {
    std::string text;
    std::int64_t repeated = 0;     // so many like it were not written
    std::chrono::seconds over{0};  // in so many seconds

    // "repeated 12 times in the last 60 s", or empty.
    std::string Count() const {
      if (repeated == 0) return "";
      return "repeated " + std::to_string(repeated) + (repeated == 1 ? " time" : " times") +
             " in the last " + std::to_string(std::max<std::int64_t>(over.count(), 1)) + " s";
    }
  };

  // The line to write now, if any.
  std::optional<Line> Note(const std::string& subject, std::string text, Clock::time_point now) {
    const auto found = subjects_.find(subject);
    if (found == subjects_.end() || IsOver(found->second, now)) {
      if (found == subjects_.end()) MakeRoom();
      subjects_[subject] = Subject{now, now, kFirstPause, 0, ""};
      return Line{.text = std::move(text)};
    }
    Subject& known = found->second;
    ++known.repeated;
    known.last_at = now;
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
    std::chrono::seconds pause{0};
    std::int64_t repeated = 0;  // since it was written
    std::string text;           // of the last of them
  };

  static bool IsOver(const Subject& subject, Clock::time_point now) {
    return subject.repeated == 0 &&
           now - std::max(subject.last_at, subject.written_at) >= subject.pause + kFirstPause;
  }

  static Line Write(Subject* subject, Clock::time_point now) {
    Line line{std::move(subject->text), subject->repeated,
              std::chrono::duration_cast<std::chrono::seconds>(now - subject->written_at)};
    subject->repeated = 0;
    subject->written_at = now;
    subject->pause = std::min(subject->pause * 2, kLongestPause);
    return line;
  }

  void MakeRoom() {
    if (subjects_.size() < kMaxSubjects) return;
    subjects_.erase(std::min_element(
        subjects_.begin(), subjects_.end(),
        [](const auto& a, const auto& b) { return a.second.last_at < b.second.last_at; }));
  }

  std::map<std::string, Subject> subjects_;
};

}  // namespace postbox

#endif  // POSTBOX_PROTO_RULES_REPEAT_LIMIT_H_
