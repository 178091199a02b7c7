#include "worker/publisher/source/log/position_check.h"

namespace postbox::publisher {
namespace {

[[noreturn]] void ThrowSetBack(const LanePosition& position, const LogMoment& moment,
                               const LogTables& tables) {
  const std::string from = std::to_string(position.from());
  const std::string& sequence = tables.sequence_name();
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "sequence " + sequence + " is at " + std::to_string(moment.hwm) +
            ", but the log has been read up to " + from,
        "The sequence was set back.",
        "Run SELECT setval('" + sequence + "', " + from + "), and UPDATE " + tables.log() +
            " SET txid = DEFAULT, seq = DEFAULT for the events that have been emitted since then.");
}

}  // namespace

PositionFit CheckPosition(const LanePosition& position, const LogMoment& moment, LogReader& reader,
                          const LogTables& tables) {
  const bool set_back = moment.hwm < position.from();
  const bool may_leave_out =
      position.main.MayLeaveOutRepeats(moment.snapshot) ||
      (position.ahead && position.ahead->position.MayLeaveOutRepeats(moment.snapshot));
  if (!set_back && !may_leave_out) return PositionFit::kFits;
  if (position.main.zones().empty() && !position.ahead) ThrowSetBack(position, moment, tables);
  const std::optional<bool> any_read = reader.AnyRead(position);
  if (!any_read) return set_back ? PositionFit::kEmptied : PositionFit::kFits;
  if (!*any_read) return PositionFit::kBeginsAgain;
  if (set_back) ThrowSetBack(position, moment, tables);
  return PositionFit::kFits;
}

}  // namespace postbox::publisher
