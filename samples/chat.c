/* chat.c: a conversation on the terminal, or one question: chat MODEL ["question"].
 *
 * The calling thread waits for the answer and shows it as it comes. Ctrl-C stops the answer and keeps what was said; a
 * second one ends the program. Exit codes: 0 answered, 1 failed, 2 wrong arguments, 130 stopped.
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

static int ask(dsa_session *session, const char *question) {
  int32_t channel = -1;
  catch_interrupt();
  if (dsa_session_ask(session, question, DSA_NTS, show, &channel) < 0) return failed();
  putchar('\n');
  return stopped ? 130 : 0;
}

static int converse(dsa_session *session) {
  char line[4096];
  int code = 0;
  for (;;) {
    catch_interrupt();
    fputs("> ", stderr);
    if (fgets(line, sizeof(line), stdin) == NULL) break; /* Ctrl-C at the prompt ends it too */
    line[strcspn(line, "\n")] = 0;
    if (line[0] != 0 && (code = ask(session, line)) == 1) break;
  }
  return code == 1 ? 1 : 0;
}

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  dsa_session *session = NULL;
  int code;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: chat MODEL [\"question\"]\n");
    return 2;
  }
  if (dsa_runtime_create(NULL, &runtime) < 0 ||
      dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0 ||
      dsa_session_create(model, NULL, &session) < 0)
    code = failed();
  else
    code = argc == 3 ? ask(session, argv[2]) : converse(session);
  dsa_session_release(session);
  dsa_model_release(model);
  dsa_runtime_release(runtime);
  return code;
}
