// chat.cc: a conversation on the terminal, or one question: chat_cpp MODEL ["question"].
//
// chat.c in C++: handles that release themselves, failures as exceptions. Ctrl-C stops the answer and keeps what was
// said; a second one ends the program. Exit codes: 0 answered, 1 failed, 2 wrong arguments, 130 stopped.
#include <signal.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "dsa_sdk.h"

namespace {

template <auto release>
struct Release {
  void operator()(auto* handle) const { release(handle); }
};
using Runtime = std::unique_ptr<dsa_runtime, Release<dsa_runtime_release>>;
using Model = std::unique_ptr<dsa_model, Release<dsa_model_release>>;
using Session = std::unique_ptr<dsa_session, Release<dsa_session_release>>;

void check(dsa_status status) {
  if (status >= 0) return;
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  throw std::runtime_error(std::string(dsa_status_name(e.code)) + ": " + e.message.ptr);
}

volatile sig_atomic_t stopped = 0;

void catch_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  action.sa_flags = SA_RESETHAND;  // the next one ends the program
  stopped = 0;
  sigaction(SIGINT, &action, nullptr);
}

// Runs on this thread for every event. Its answer decides how the run goes on.
int32_t show(void* ud, const dsa_event* e) {
  int32_t& channel = *static_cast<int32_t*>(ud);
  if (e->type == DSA_EVENT_TEXT) {
    if (channel >= 0 && channel != e->channel) std::cerr << '\n';
    channel = e->channel;
    std::ostream& out = channel == DSA_CHANNEL_ANSWER ? std::cout : std::cerr;  // reasoning goes beside
    out.write(e->text.ptr, std::streamsize(e->text.len)).flush();
  }
  return stopped ? DSA_STOP_KEEP : DSA_CONTINUE;
}

int ask(const Session& session, const std::string& question) {
  int32_t channel = -1;
  catch_interrupt();
  check(dsa_session_ask(session.get(), question.data(), question.size(), show, &channel));
  std::cout << std::endl;
  return stopped ? 130 : 0;
}

int converse(const Session& session) {
  std::string line;
  for (catch_interrupt(); std::cerr << "> " && std::getline(std::cin, line) && !stopped; catch_interrupt())
    if (!line.empty()) ask(session, line);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) return std::cerr << "usage: chat_cpp MODEL [\"question\"]\n", 2;
  dsa_runtime* runtime = nullptr;
  dsa_model* model = nullptr;
  dsa_session* session = nullptr;
  check(dsa_runtime_create(nullptr, &runtime));
  const Runtime keep_runtime(runtime);
  check(dsa_model_load_path(runtime, argv[1], nullptr, nullptr, &model));
  const Model keep_model(model);
  check(dsa_session_create(model, nullptr, &session));
  const Session chat(session);
  return argc == 3 ? ask(chat, argv[2]) : converse(chat);
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
