#include "worker/pubsub/publish/outgoing_message.h"

#include "proto/rules/error_class.h"
#include "proto/rules/message_check.h"
#include "worker/pubsub/publish/message_wire.h"

namespace postbox::pubsub {

OutgoingMessage MakeOutgoingMessage(std::string_view topic, std::string ordering_key,
                                    std::string_view data, const Attributes& attributes) {
  OutgoingMessage message;
  message.topic = topic;
  const std::vector<AttributeView> views(attributes.begin(), attributes.end());
  EncodeMessage(data, views, ordering_key, &message.encoded);
  if (const auto problem = CheckMessage(data, attributes, ordering_key, topic.size())) {
    message.status = PublishStatus::kRejected;
    message.error = StatusText(kInvalidArgument, problem->Text());
  }
  message.ordering_key = std::move(ordering_key);
  return message;
}

}  // namespace postbox::pubsub
