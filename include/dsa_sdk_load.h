/* dsa_sdk_load.h: resolves every function of dsa_sdk.h at run time, for programs that must start without the library.
 *
 *     dsa_sdk_functions dsa;
 *     const char *missing[8];
 *     const int n = dsa_sdk_load("./libdsa_sdk.so.0", &dsa, missing, 8);
 *     if (n == 0) puts(dsa.dsa_version_string());
 *
 * A library that is older than this header lacks functions: they are NULL, and named in `missing`. Link with -ldl where
 * dlopen() is not a part of the C library.
 *
 * Made by bindings/generate.py from dsa_sdk.h; a test compares it.
 */
#ifndef DSA_SDK_LOAD_H
#define DSA_SDK_LOAD_H

#include <dlfcn.h>
#include <string.h>

#include "dsa_sdk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One pointer for each function, in the order of the header. */
typedef struct dsa_sdk_functions {
  uint32_t (*dsa_version)(void);
  const char *(*dsa_version_string)(void);
  uint32_t (*dsa_api_level)(void);
  const char *(*dsa_abi_json)(void);
  int32_t (*dsa_has_feature)(const char *name);
  const char *(*dsa_status_name)(dsa_status status);
  dsa_status (*dsa_last_error)(dsa_error *out);
  dsa_status (*dsa_runtime_create)(const dsa_runtime_options *options, dsa_runtime **out);
  void (*dsa_runtime_retain)(const dsa_runtime *runtime);
  void (*dsa_runtime_release)(const dsa_runtime *runtime);
  dsa_status (*dsa_runtime_set_log)(const dsa_runtime *runtime, int32_t level, dsa_log_fn log, void *ud);
  dsa_status (*dsa_runtime_count_devices)(const dsa_runtime *runtime, size_t *out);
  dsa_status (*dsa_runtime_get_device)(const dsa_runtime *runtime, size_t index, dsa_device_info *out);
  dsa_status (*dsa_package_open)(const dsa_runtime *runtime, const dsa_source *source, dsa_package **out);
  void (*dsa_package_retain)(const dsa_package *package);
  void (*dsa_package_release)(const dsa_package *package);
  dsa_status (*dsa_package_get_info)(const dsa_package *package, dsa_package_info *out);
  dsa_status (*dsa_package_get_meta)(const dsa_package *package, const char *key, dsa_str *out);
  dsa_status (*dsa_plan_create)(const dsa_package *package, const dsa_plan_request *request, dsa_plan **out);
  void (*dsa_plan_release)(dsa_plan *plan);
  dsa_status (*dsa_plan_get)(const dsa_plan *plan, dsa_plan_summary *out);
  dsa_status (*dsa_plan_explain)(const dsa_plan *plan, dsa_str *json);
  dsa_status (*dsa_model_load)(
      const dsa_package *package, const dsa_plan *plan, const dsa_load_options *options,
      dsa_progress_fn progress, void *ud, dsa_model **out
  );
  dsa_status (*dsa_model_load_path)(
      const dsa_runtime *runtime, const char *path, dsa_progress_fn progress, void *ud, dsa_model **out
  );
  void (*dsa_model_retain)(const dsa_model *model);
  void (*dsa_model_release)(const dsa_model *model);
  dsa_status (*dsa_model_close)(const dsa_model *model, int64_t timeout_ms);
  dsa_status (*dsa_model_get_stats)(const dsa_model *model, dsa_model_stats *out);
  dsa_status (*dsa_model_tokenize)(
      const dsa_model *model, const char *text, size_t len, uint32_t flags, dsa_token *out, size_t cap,
      size_t *count
  );
  dsa_status (*dsa_model_detokenize)(
      const dsa_model *model, const dsa_token *tokens, size_t n, uint32_t flags, char *out, size_t cap,
      size_t *len
  );
  dsa_status (*dsa_op_wait)(const dsa_op *op, int64_t timeout_ms, dsa_progress *progress);
  dsa_status (*dsa_op_cancel)(const dsa_op *op);
  dsa_status (*dsa_op_get_error)(const dsa_op *op, dsa_error *out);
  void (*dsa_op_release)(dsa_op *op);
  dsa_status (*dsa_image_from_file)(
      const dsa_runtime *runtime, const char *path, const dsa_image_options *options, dsa_image **out
  );
  dsa_status (*dsa_image_from_memory)(
      const dsa_runtime *runtime, const void *data, size_t len, const dsa_image_options *options,
      dsa_image **out
  );
  dsa_status (*dsa_image_from_pixels)(
      const dsa_runtime *runtime, const dsa_pixels *pixels, const dsa_image_options *options,
      dsa_image **out
  );
  void (*dsa_image_retain)(const dsa_image *image);
  void (*dsa_image_release)(const dsa_image *image);
  dsa_status (*dsa_image_get_size)(const dsa_image *image, uint32_t *width, uint32_t *height);
  dsa_status (*dsa_image_get_id)(const dsa_image *image, dsa_str *out);
  dsa_status (*dsa_image_prepare)(const dsa_image *image, const dsa_model *model, dsa_op **out);
  dsa_status (*dsa_prompt_create)(const dsa_runtime *runtime, dsa_prompt **out);
  void (*dsa_prompt_release)(dsa_prompt *prompt);
  dsa_status (*dsa_prompt_clear)(dsa_prompt *prompt);
  dsa_status (*dsa_prompt_message)(dsa_prompt *prompt, int32_t role);
  dsa_status (*dsa_prompt_text)(dsa_prompt *prompt, const char *text, size_t len);
  dsa_status (*dsa_prompt_markup)(dsa_prompt *prompt, const char *text, size_t len);
  dsa_status (*dsa_prompt_tokens)(dsa_prompt *prompt, const dsa_token *tokens, size_t n);
  dsa_status (*dsa_prompt_add_json)(dsa_prompt *prompt, const char *json, size_t len);
  dsa_status (*dsa_prompt_reasoning)(dsa_prompt *prompt, const char *text, size_t len);
  dsa_status (*dsa_prompt_tool_call)(
      dsa_prompt *prompt, const char *id, const char *name, const char *arguments_json, size_t len
  );
  dsa_status (*dsa_prompt_tool_result)(dsa_prompt *prompt, const char *id, const char *text, size_t len);
  dsa_status (*dsa_prompt_set_tools)(dsa_prompt *prompt, const char *json, size_t len);
  dsa_status (*dsa_prompt_image)(dsa_prompt *prompt, const dsa_image *image);
  dsa_status (*dsa_prompt_bind_image)(dsa_prompt *prompt, const char *name, const dsa_image *image);
  dsa_status (*dsa_prompt_measure)(
      const dsa_prompt *prompt, const dsa_model *model, const dsa_session *session, int32_t feed,
      dsa_prompt_cost *out
  );
  dsa_status (*dsa_prompt_render)(
      const dsa_prompt *prompt, const dsa_model *model, char *out, size_t cap, size_t *len
  );
  dsa_status (*dsa_session_create)(
      const dsa_model *model, const dsa_session_options *options, dsa_session **out
  );
  void (*dsa_session_retain)(const dsa_session *session);
  void (*dsa_session_release)(const dsa_session *session);
  dsa_status (*dsa_session_get_info)(const dsa_session *session, dsa_session_info *out);
  dsa_status (*dsa_session_cancel)(const dsa_session *session, int32_t how);
  dsa_status (*dsa_session_prefill)(
      dsa_session *session, const dsa_prompt *prompt, dsa_progress_fn progress, void *ud,
      uint32_t *num_tokens
  );
  dsa_status (*dsa_session_generate)(
      dsa_session *session, const dsa_prompt *prompt, const dsa_run_options *options, dsa_event_fn on_event,
      void *ud, dsa_result *out
  );
  dsa_status (*dsa_session_ask)(
      dsa_session *session, const char *text, size_t len, dsa_event_fn on_event, void *ud
  );
  dsa_status (*dsa_run_start)(
      dsa_session *session, const dsa_prompt *prompt, const dsa_run_options *options, dsa_run **out
  );
  dsa_status (*dsa_run_next)(dsa_run *run, int64_t timeout_ms, dsa_event *out);
  dsa_status (*dsa_run_cancel)(const dsa_run *run, int32_t how);
  dsa_status (*dsa_run_get_result)(const dsa_run *run, dsa_result *out);
  dsa_status (*dsa_run_get_error)(const dsa_run *run, dsa_error *out);
  dsa_status (*dsa_run_get_text)(const dsa_run *run, int32_t channel, dsa_str *out);
  dsa_status (*dsa_run_get_tool_call)(const dsa_run *run, uint32_t index, dsa_tool_call *out);
  dsa_status (*dsa_run_get_stats)(const dsa_run *run, dsa_run_stats *out);
  void (*dsa_run_retain)(const dsa_run *run);
  void (*dsa_run_release)(const dsa_run *run);
} dsa_sdk_functions;

/* Opens the library and fills the table. Returns 0 if every function was found, else the number of those that were not,
 * or -1 if the library cannot be opened; dlerror() says why. `missing` receives at most `cap` of their names and may be
 * NULL if `cap` is 0. The library stays loaded. */
static inline int dsa_sdk_load(const char *path, dsa_sdk_functions *out, const char **missing, size_t cap) {
  static const char *const names[] = {
    "dsa_version",
    "dsa_version_string",
    "dsa_api_level",
    "dsa_abi_json",
    "dsa_has_feature",
    "dsa_status_name",
    "dsa_last_error",
    "dsa_runtime_create",
    "dsa_runtime_retain",
    "dsa_runtime_release",
    "dsa_runtime_set_log",
    "dsa_runtime_count_devices",
    "dsa_runtime_get_device",
    "dsa_package_open",
    "dsa_package_retain",
    "dsa_package_release",
    "dsa_package_get_info",
    "dsa_package_get_meta",
    "dsa_plan_create",
    "dsa_plan_release",
    "dsa_plan_get",
    "dsa_plan_explain",
    "dsa_model_load",
    "dsa_model_load_path",
    "dsa_model_retain",
    "dsa_model_release",
    "dsa_model_close",
    "dsa_model_get_stats",
    "dsa_model_tokenize",
    "dsa_model_detokenize",
    "dsa_op_wait",
    "dsa_op_cancel",
    "dsa_op_get_error",
    "dsa_op_release",
    "dsa_image_from_file",
    "dsa_image_from_memory",
    "dsa_image_from_pixels",
    "dsa_image_retain",
    "dsa_image_release",
    "dsa_image_get_size",
    "dsa_image_get_id",
    "dsa_image_prepare",
    "dsa_prompt_create",
    "dsa_prompt_release",
    "dsa_prompt_clear",
    "dsa_prompt_message",
    "dsa_prompt_text",
    "dsa_prompt_markup",
    "dsa_prompt_tokens",
    "dsa_prompt_add_json",
    "dsa_prompt_reasoning",
    "dsa_prompt_tool_call",
    "dsa_prompt_tool_result",
    "dsa_prompt_set_tools",
    "dsa_prompt_image",
    "dsa_prompt_bind_image",
    "dsa_prompt_measure",
    "dsa_prompt_render",
    "dsa_session_create",
    "dsa_session_retain",
    "dsa_session_release",
    "dsa_session_get_info",
    "dsa_session_cancel",
    "dsa_session_prefill",
    "dsa_session_generate",
    "dsa_session_ask",
    "dsa_run_start",
    "dsa_run_next",
    "dsa_run_cancel",
    "dsa_run_get_result",
    "dsa_run_get_error",
    "dsa_run_get_text",
    "dsa_run_get_tool_call",
    "dsa_run_get_stats",
    "dsa_run_retain",
    "dsa_run_release"
  };
  void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const size_t count = sizeof(names) / sizeof(names[0]);
  size_t i;
  int absent = 0;
  memset(out, 0, sizeof(*out));
  if (library == NULL) return -1;
  for (i = 0; i < count; ++i) {
    void *const function = dlsym(library, names[i]);
    if (function == NULL) {
      if ((size_t)absent < cap) missing[absent] = names[i];
      ++absent;
    } else {
      memcpy((char *)out + i * sizeof(function), &function, sizeof(function)); /* in the order of the names */
    }
  }
  return absent;
}

#ifdef __cplusplus
}
#endif

#endif /* DSA_SDK_LOAD_H */
