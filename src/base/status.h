// base/status.h: how failure travels. A Status is a code and a sentence; a Result<T> is a value or a Status.
#pragma once

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace dsa {

// The numbers of dsa_status in dsa_sdk.h; tests/abi compares them.
enum class Code : int32_t {
  ok = 0,
  pending = 1,
  end = 2,
  partial = 3,
  rebuilt = 4,
  degraded = 5,
  argument = -101,
  abi = -102,
  state = -103,
  busy = -104,
  reentrant = -105,
  closed = -106,
  forked = -107,
  unsupported = -108,
  out_of_memory = -201,
  out_of_device_memory = -202,
  over_budget = -203,
  disk_full = -204,
  context_full = -205,
  limit = -206,
  queue_full = -207,
  not_found = -301,
  access = -302,
  io = -303,
  corrupt = -304,
  hash = -305,
  format = -306,
  model = -307,
  mismatch = -308,
  no_device = -401,
  driver = -402,
  backend = -403,
  device_lost = -404,
  device_fault = -405,
  numeric = -406,
  utf8 = -501,
  image = -502,
  schema = -503,
  template_error = -504,
  json = -505,
  cancelled = -601,
  deadline = -602,
  callback = -603,
  internal = -901,
  worker_lost = -902,
};

// What a program can do about a failure: the numbers of DSA_FIX_*.
enum class Fix : int32_t {
  none,
  input,
  shorten,
  lower_budget,
  free_memory,
  update_driver,
  download_again,
  resume,
  restart_process,
  retry,
  report,
};

struct ErrorInfo {
  Code code = Code::ok;
  Fix fix = Fix::none;
  int64_t native = 0;      // errno or a driver's code
  uint64_t needed = 0;     // bytes or tokens, with the codes about room
  uint64_t available = 0;  // the same unit
  uint64_t position = 0;   // byte offset, with the codes about content
  std::string message;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(ErrorInfo info) : info_(std::make_shared<ErrorInfo>(std::move(info))) {}

  static Status ok() { return {}; }
  bool is_ok() const { return info_ == nullptr; }
  Code code() const { return info_ ? info_->code : Code::ok; }
  const std::string& message() const { return info_ ? info_->message : empty_message(); }
  const ErrorInfo& info() const { return info_ ? *info_ : empty_info(); }

  // Builder calls, for the one place that makes the error: error(...).with_room(needed, available).
  Status&& with_fix(Fix fix) && { return info_->fix = fix, std::move(*this); }
  Status&& with_native(int64_t native) && { return info_->native = native, std::move(*this); }
  Status&& with_position(uint64_t position) && { return info_->position = position, std::move(*this); }
  Status&& with_room(uint64_t needed, uint64_t available) && {
    info_->needed = needed;
    info_->available = available;
    return std::move(*this);
  }

 private:
  static const std::string& empty_message();
  static const ErrorInfo& empty_info();

  std::shared_ptr<ErrorInfo> info_;  // null: success
};

// One text out of many values: concat("layer ", 3, " is ", name).
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// A failure with its sentence: error(Code::model, path, ": '", name, "' is missing").
template <class... Parts>
Status error(Code code, const Parts&... parts) {
  ErrorInfo info;
  info.code = code;
  info.message = concat(parts...);
  return Status(std::move(info));
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: a value is a result
  Result(Status status) : value_(std::move(status)) {}  // NOLINT: so is a failure
  bool is_ok() const { return std::holds_alternative<T>(value_); }
  Status status() const { return is_ok() ? Status() : std::get<Status>(value_); }
  T& value() & { return std::get<T>(value_); }
  const T& value() const& { return std::get<T>(value_); }
  T value() && { return std::get<T>(std::move(value_)); }  // by value: for (x : f().value()) must not dangle

 private:
  std::variant<T, Status> value_;
};

#define DSA_CONCAT_2(a, b) a##b
#define DSA_CONCAT(a, b) DSA_CONCAT_2(a, b)

// Passes a failure up.
#define DSA_TRY(expr)                                                                 \
  do {                                                                                \
    if (::dsa::Status dsa_status_ = (expr); !dsa_status_.is_ok()) return dsa_status_; \
  } while (false)

// Declares a value or passes the failure up: DSA_ASSIGN(Tensor logits, model.run(plan)).
#define DSA_ASSIGN(decl, expr) DSA_ASSIGN_2(DSA_CONCAT(dsa_result_, __LINE__), decl, expr)
#define DSA_ASSIGN_2(result, decl, expr)       \
  auto result = (expr);                        \
  if (!result.is_ok()) return result.status(); \
  decl = std::move(result).value()

// States what a reader may rely on. Checked in debug builds and under the sanitizers;
// elsewhere the condition is not evaluated.
#ifdef NDEBUG
#define DSA_ASSERT(condition) ((void)0)
#else
#define DSA_ASSERT(condition) ((condition) ? (void)0 : ::dsa::assert_failed(#condition, __FILE__, __LINE__))
#endif
// Throws; the C boundary turns it into DSA_ERROR_INTERNAL.
[[noreturn]] void assert_failed(const char* condition, const char* file, int line);

}  // namespace dsa
