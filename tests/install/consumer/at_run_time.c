/* Starts without the library, and resolves it by path: at_run_time LIBRARY MODEL "question". Exit code 3: some functions
 * are missing, and named. */
#include <stdio.h>

#include "dsa_sdk_load.h"

static int32_t show(void *ud, const dsa_event *e) {
  (void)ud;
  if (e->type == DSA_EVENT_TEXT) fwrite(e->text.ptr, 1, e->text.len, stdout);
  return DSA_CONTINUE;
}

int main(int argc, char **argv) {
  dsa_sdk_functions dsa;
  const char *missing[4];
  dsa_runtime *runtime = NULL;
  dsa_model *model = NULL;
  dsa_session *session = NULL;
  int absent, i;
  if (argc != 4) return 2;
  absent = dsa_sdk_load(argv[1], &dsa, missing, 4);
  if (absent < 0) return fprintf(stderr, "%s\n", dlerror()), 1;
  for (i = 0; i < absent && i < 4; ++i) fprintf(stderr, "missing: %s\n", missing[i]);
  if (absent > 0) return 3;
  if (dsa.dsa_runtime_create(NULL, &runtime) < 0 ||
      dsa.dsa_model_load_path(runtime, argv[2], NULL, NULL, &model) < 0 ||
      dsa.dsa_session_create(model, NULL, &session) < 0 ||
      dsa.dsa_session_ask(session, argv[3], DSA_NTS, show, NULL) < 0)
    return 1;
  dsa.dsa_session_release(session);
  dsa.dsa_model_release(model);
  dsa.dsa_runtime_release(runtime);
  return 0;
}
