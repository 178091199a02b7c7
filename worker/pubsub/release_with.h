// A deleter for what a C library has made: std::unique_ptr<T, ReleaseWith<function>>.
#ifndef POSTBOX_WORKER_PUBSUB_RELEASE_WITH_H_
#define POSTBOX_WORKER_PUBSUB_RELEASE_WITH_H_

namespace postbox::pubsub {

template <auto Function>
struct ReleaseWith {
  template <class T>
  void operator()(T* object) const {
    Function(object);
  }
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_RELEASE_WITH_H_
