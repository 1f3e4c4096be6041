/* overhead.c: what a streamed token costs in C: overhead MODEL. Prints nanoseconds. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dsa_sdk.h"

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  dsa_session *session = NULL;
  dsa_prompt *prompt = NULL;
  dsa_run *run = NULL;
  dsa_run_options options = DSA_INIT(dsa_run_options);
  dsa_event e = DSA_INIT(dsa_event);
  char answer[64];
  long tokens = 0;
  double begin;
  options.max_tokens = 1;
  if (argc != 2 || dsa_runtime_create(NULL, &runtime) < 0 ||
      dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0 ||
      dsa_session_create(model, NULL, &session) < 0 || dsa_prompt_create(runtime, &prompt) < 0 ||
      dsa_prompt_message(prompt, DSA_ROLE_USER) < 0 || dsa_prompt_text(prompt, "Hello.", DSA_NTS) < 0 ||
      dsa_run_start(session, prompt, &options, &run) < 0)
    return 1;
  begin = now_ns();
  while (dsa_run_next(run, DSA_FOREVER, &e) == DSA_OK)
    if (e.type == DSA_EVENT_TEXT) {
      memcpy(answer, e.text.ptr, e.text.len + 1);
      ++tokens;
    }
  printf("%.1f\n", (now_ns() - begin) / (double)tokens);
  dsa_run_release(run);
  dsa_prompt_release(prompt);
  dsa_session_release(session);
  dsa_model_release(model);
  dsa_runtime_release(runtime);
  return 0;
}
