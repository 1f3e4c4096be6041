/* vision.c: one question about a picture: vision MODEL PICTURE "question".
 *
 * Exit codes: 0 answered, 1 failed, 2 wrong arguments.
 */
#include <stdio.h>

#include "dsa_sdk.h"

static int failed(void) {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  fprintf(stderr, "%s: %s\n", dsa_status_name(e.code), e.message.ptr);
  return 1;
}

/* Runs on this thread for every event. */
static int32_t show(void *ud, const dsa_event *e) {
  (void)ud;
  if (e->type == DSA_EVENT_TEXT && e->channel == DSA_CHANNEL_ANSWER) {
    fwrite(e->text.ptr, 1, e->text.len, stdout);
    fflush(stdout);
  }
  return DSA_CONTINUE;
}

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  dsa_session *session = NULL;
  dsa_image *image = NULL;
  dsa_prompt *prompt = NULL;
  int code = 0;
  if (argc != 4) {
    fprintf(stderr, "usage: vision MODEL PICTURE \"question\"\n");
    return 2;
  }
  if (dsa_runtime_create(NULL, &runtime) < 0 || dsa_image_from_file(runtime, argv[2], NULL, &image) < 0 ||
      dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0 ||
      dsa_session_create(model, NULL, &session) < 0 || dsa_prompt_create(runtime, &prompt) < 0 ||
      dsa_prompt_message(prompt, DSA_ROLE_USER) < 0 || dsa_prompt_image(prompt, image) < 0 ||
      dsa_prompt_text(prompt, argv[3], DSA_NTS) < 0 ||
      dsa_session_generate(session, prompt, NULL, show, NULL, NULL) < 0)
    code = failed();
  else
    putchar('\n');
  dsa_prompt_release(prompt);
  dsa_session_release(session);
  dsa_model_release(model);
  dsa_image_release(image);
  dsa_runtime_release(runtime);
  return code;
}
