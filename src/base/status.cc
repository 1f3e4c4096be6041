#include "base/status.h"

#include <stdexcept>

namespace dsa {

const std::string& Status::empty_message() {
  static const std::string& message = *new std::string();  // never destroyed: the host may exit at any time
  return message;
}

const ErrorInfo& Status::empty_info() {
  static const ErrorInfo& info = *new ErrorInfo();
  return info;
}

void assert_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(concat("assertion failed: ", condition, " (", file, ":", line, ")"));
}

}  // namespace dsa
