/* chat.c: a conversation on the terminal, or one question: chat MODEL ["question"].
 *
 * The calling thread waits for the answer and shows it as it comes. Ctrl-C stops the answer and keeps what was said; a
 * second one ends the program. In a conversation "/image PATH" shows a picture with the next question. Exit codes: 0 answered, 1 failed, 2 wrong arguments, 130 stopped.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "dsa_sdk.h"

static volatile sig_atomic_t stopped;

static void on_interrupt(int signal_number) {
  struct sigaction standard;
  memset(&standard, 0, sizeof(standard));
  standard.sa_handler = SIG_DFL;
  stopped = 1;
  sigaction(signal_number, &standard, NULL); /* the next one ends the program */
}

static void catch_interrupt(void) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = on_interrupt;
  stopped = 0;
  sigaction(SIGINT, &action, NULL);
}

static int failed(void) {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  fprintf(stderr, "%s: %s\n", dsa_status_name(e.code), e.message.ptr);
  return 1;
}

/* Runs on this thread for every event. Its answer decides how the run goes on. */
static int32_t show(void *ud, const dsa_event *e) {
  int32_t *channel = ud;
  if (e->type == DSA_EVENT_TEXT) {
    FILE *out = e->channel == DSA_CHANNEL_ANSWER ? stdout : stderr; /* reasoning goes beside the answer */
    if (*channel >= 0 && *channel != e->channel) fputc('\n', stderr);
    *channel = e->channel;
    fwrite(e->text.ptr, 1, e->text.len, out);
    fflush(out);
  }
  return stopped ? DSA_STOP_KEEP : DSA_CONTINUE;
}

static int ask(dsa_session *session, dsa_prompt *prompt, const char *question) {
  int32_t channel = -1;
  dsa_status status;
  catch_interrupt();
  if (dsa_prompt_text(prompt, question, DSA_NTS) < 0) return failed();
  status = dsa_session_generate(session, prompt, NULL, show, &channel, NULL);
  if (status < 0) return failed();
  putchar('\n');
  return stopped ? 130 : 0;
}

/* The pictures of a message come before its text. */
static int begin_message(dsa_prompt *prompt) {
  return dsa_prompt_clear(prompt) < 0 || dsa_prompt_message(prompt, DSA_ROLE_USER) < 0 ? failed() : 0;
}

static void show_image(dsa_runtime *runtime, dsa_prompt *prompt, const char *path) {
  dsa_image *image = NULL;
  if (dsa_image_from_file(runtime, path, NULL, &image) < 0 || dsa_prompt_image(prompt, image) < 0) failed();
  dsa_image_release(image);
}

static int converse(dsa_runtime *runtime, dsa_session *session, dsa_prompt *prompt) {
  char line[4096];
  int code = 0;
  while (code != 1) {
    catch_interrupt();
    fputs("> ", stderr);
    if (fgets(line, sizeof(line), stdin) == NULL) break; /* Ctrl-C at the prompt ends it too */
    line[strcspn(line, "\n")] = 0;
    if (line[0] == 0) continue;
    if (strncmp(line, "/image ", 7) == 0) {
      show_image(runtime, prompt, line + 7);
    } else {
      code = ask(session, prompt, line);
      if (begin_message(prompt) != 0) code = 1;
    }
  }
  return code == 1 ? 1 : 0;
}

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  dsa_session *session = NULL;
  dsa_prompt *prompt = NULL;
  int code;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: chat MODEL [\"question\"]\n");
    return 2;
  }
  if (dsa_runtime_create(NULL, &runtime) < 0 ||
      dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0 ||
      dsa_session_create(model, NULL, &session) < 0 || dsa_prompt_create(runtime, &prompt) < 0)
    code = failed();
  else if (begin_message(prompt) != 0)
    code = 1;
  else
    code = argc == 3 ? ask(session, prompt, argv[2]) : converse(runtime, session, prompt);
  dsa_prompt_release(prompt);
  dsa_session_release(session);
  dsa_model_release(model);
  dsa_runtime_release(runtime);
  return code;
}
