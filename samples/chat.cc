// chat.cc: chat.c in C++. A conversation on the terminal, or one question: chat_cpp MODEL ["question"].
//
// "/image PATH" shows a picture with the next question. Ctrl-C stops the answer and keeps what was said; a second one
// ends the program. Exit codes: 0 answered, 1 failed, 2 wrong arguments, 130 stopped.
#include <signal.h>

#include <iostream>
#include <string>

#include "dsa_sdk.h"

template <class T, auto release>  // gives itself back
struct Handle {
  ~Handle() { release(handle); }
  operator T*() const { return handle; }
  T* handle = nullptr;
};

static std::string failure() {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  return std::string(dsa_status_name(e.code)) + ": " + e.message.ptr;
}

static void check(dsa_status status) {
  if (status < 0) throw failure();
}

static volatile sig_atomic_t stopped;

static void catch_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  action.sa_flags = int(SA_RESETHAND);  // the next one ends the program
  stopped = 0;
  sigaction(SIGINT, &action, nullptr);
}

// Runs on this thread for every event. Its answer decides how the run goes on.
static int32_t show(void*, const dsa_event* e) {
  if (e->type == DSA_EVENT_TEXT)  // reasoning goes beside the answer
    (e->channel == DSA_CHANNEL_ANSWER ? std::cout : std::cerr) << e->text.ptr << std::flush;
  return stopped ? DSA_STOP_KEEP : DSA_CONTINUE;
}

static int ask(dsa_session* session, dsa_prompt* prompt, const std::string& question) {
  catch_interrupt();
  check(dsa_prompt_text(prompt, question.data(), question.size()));
  check(dsa_session_generate(session, prompt, nullptr, show, nullptr, nullptr));
  std::cout << std::endl;
  check(dsa_prompt_clear(prompt));
  check(dsa_prompt_message(prompt, DSA_ROLE_USER));
  return stopped ? 130 : 0;
}

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) return std::cerr << "usage: chat_cpp MODEL [\"question\"]\n", 2;
  Handle<dsa_runtime, dsa_runtime_release> runtime;
  Handle<dsa_model, dsa_model_release> model;
  Handle<dsa_session, dsa_session_release> session;
  Handle<dsa_prompt, dsa_prompt_release> prompt;
  check(dsa_runtime_create(nullptr, &runtime.handle));
  check(dsa_model_load_path(runtime, argv[1], nullptr, nullptr, &model.handle));
  check(dsa_session_create(model, nullptr, &session.handle));
  check(dsa_prompt_create(runtime, &prompt.handle));
  check(dsa_prompt_message(prompt, DSA_ROLE_USER));
  if (argc == 3) return ask(session, prompt, argv[2]);
  std::string line;
  for (catch_interrupt(); std::cerr << "> " && std::getline(std::cin, line); catch_interrupt())
    if (Handle<dsa_image, dsa_image_release> image; line.rfind("/image ", 0) != 0) {
      if (!line.empty()) ask(session, prompt, line);
    } else if (dsa_image_from_file(runtime, line.c_str() + 7, nullptr, &image.handle) < 0 ||
               dsa_prompt_image(prompt, image) < 0) {
      std::cerr << failure() << '\n';
    }
  return 0;
} catch (const std::string& failed) {
  return std::cerr << failed << '\n', 1;
}
