/* device.c: which devices there are, what a model would take of one, and an answer from it.
 *
 *   device                            the devices, each with what keeps it from being used
 *   device MODEL DEVICE ["question"]  the plan for a device, "cuda" or an id of that list; with a question the answer and
 *                                     what the model really took. Exit codes: 0 done, 1 failed, 2 wrong arguments.
 */
#include <stdio.h>
#include <string.h>

#include "dsa_sdk.h"

static int failed(void) {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  fprintf(stderr, "%s: %s\n", dsa_status_name(e.code), e.message.ptr);
  return 1;
}

static double megabytes(uint64_t bytes) { return (double)bytes / (1 << 20); }

static int list(const dsa_runtime *runtime) {
  size_t i, n;
  if (dsa_runtime_count_devices(runtime, &n) < 0) return failed();
  for (i = 0; i < n; ++i) {
    dsa_device_info d = DSA_INIT(dsa_device_info);
    if (dsa_runtime_get_device(runtime, i, &d) < 0) return failed();
    printf("%-46.*s %.*s", (int)d.id.len, d.id.ptr, (int)d.name.len, d.name.ptr);
    if (d.usable)
      printf(", %.0f of %.0f MiB free\n", megabytes(d.free_bytes), megabytes(d.total_bytes));
    else
      printf(": %s: %.*s\n", dsa_status_name(d.why_not_code), (int)d.why_not.len, d.why_not.ptr);
  }
  return 0;
}

static int32_t show(void *ud, const dsa_event *e) {
  (void)ud;
  if (e->type == DSA_EVENT_TEXT && e->channel == DSA_CHANNEL_ANSWER)
    fwrite(e->text.ptr, 1, e->text.len, stdout);
  return DSA_CONTINUE;
}

static int answer(const dsa_runtime *runtime, const dsa_model *model, const dsa_plan_summary *plan,
                  const char *question) {
  dsa_session *session = NULL;
  dsa_prompt *prompt = NULL;
  dsa_model_stats stats = DSA_INIT(dsa_model_stats);
  int code = 0;
  if (dsa_session_create(model, NULL, &session) < 0 || dsa_prompt_create(runtime, &prompt) < 0 ||
      dsa_prompt_message(prompt, DSA_ROLE_USER) < 0 || dsa_prompt_text(prompt, question, DSA_NTS) < 0 ||
      dsa_session_generate(session, prompt, NULL, show, NULL, NULL) < 0 ||
      dsa_model_get_stats(model, &stats) < 0)
    code = failed();
  else
    printf("\ndevice memory: %.1f MiB planned, %.1f MiB taken\n", megabytes(plan->device_bytes),
           megabytes(stats.device_bytes));
  dsa_prompt_release(prompt);
  dsa_session_release(session);
  return code;
}

static int plan_and_run(const dsa_runtime *runtime, const char *path, const char *device,
                        const char *question) {
  dsa_package *package = NULL;
  dsa_plan *plan = NULL;
  dsa_model *model = NULL;
  dsa_source source = DSA_INIT(dsa_source);
  dsa_plan_request request = DSA_INIT(dsa_plan_request);
  dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
  dsa_str id, json;
  int code = 0;
  source.path.ptr = path;
  source.path.len = strlen(path);
  id.ptr = device;
  id.len = strlen(device);
  request.device_ids = &id;
  request.num_device_ids = 1;
  request.context_tokens = 4096;
  if (dsa_package_open(runtime, &source, &package) < 0 || dsa_plan_create(package, &request, &plan) < 0 ||
      dsa_plan_get(plan, &summary) < 0 || dsa_plan_explain(plan, &json) < 0) {
    code = failed();
  } else {
    printf("%.*s\n", (int)json.len, json.ptr);
    if (question != NULL)
      code = dsa_model_load(package, plan, NULL, NULL, NULL, &model) < 0
                 ? failed()
                 : answer(runtime, model, &summary, question);
  }
  dsa_model_release(model);
  dsa_plan_release(plan);
  dsa_package_release(package);
  return code;
}

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  int code;
  if (argc == 2 || argc > 4) {
    fprintf(stderr, "usage: device [MODEL DEVICE [\"question\"]]\n");
    return 2;
  }
  if (dsa_runtime_create(NULL, &runtime) < 0) return failed();
  code = argc == 1 ? list(runtime) : plan_and_run(runtime, argv[1], argv[2], argc == 4 ? argv[3] : NULL);
  dsa_runtime_release(runtime);
  return code;
}
