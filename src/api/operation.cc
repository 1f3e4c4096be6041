// api/operation.cc: long operations.
#include "engine/operation.h"

#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

dsa_status dsa_op_wait(const dsa_op* op, int64_t timeout_ms, dsa_progress* progress) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(op, "op"));
    DSA_TRY(check_timeout(timeout_ms));
    if (progress != nullptr) DSA_TRY(check_out(progress, "dsa_progress"));
    const bool done = op->impl->wait(timeout_ms);
    if (progress != nullptr) {
      dsa_progress made{};
      made.done = done ? 1 : 0;
      made.total = 1;
      made.stage = DSA_STAGE_IMAGE;
      made.usable = 1;
      write_out(made, progress);
    }
    if (!done) return DSA_PENDING;
    return op->impl->status();
  });
}

dsa_status dsa_op_cancel(const dsa_op* op) {
  return guard(Callable::wakeup, [&]() -> Outcome {
    DSA_TRY(check_handle(op, "op"));
    op->impl->cancel();
    return DSA_OK;
  });
}

dsa_status dsa_op_get_error(const dsa_op* op, dsa_error* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(op, "op"));
    DSA_TRY(check_out(out, "dsa_error"));
    if (!op->impl->is_done()) return DSA_PENDING;
    write_out(error_of(op->impl->status().info()), out);
    return DSA_OK;
  });
}

void dsa_op_release(dsa_op* op) {
  release(op, [](Operation& operation) { operation.cancel(); });
}
