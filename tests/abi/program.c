/* What a C host sees without a model: versions, names, errors, prompts; `--json` prints the description. */
#include <stdio.h>
#include <string.h>

#include "dsa_sdk.h"

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (0)

int main(int argc, char **argv) {
  dsa_runtime *runtime = NULL;
  dsa_prompt *prompt = NULL;
  dsa_package *package = NULL;
  dsa_model *model = NULL;
  dsa_source source = DSA_INIT(dsa_source);
  dsa_error error = DSA_INIT(dsa_error);
  dsa_device_info device = DSA_INIT(dsa_device_info);
  size_t count = 0;
  char version[32];

  if (argc > 1 && strcmp(argv[1], "--json") == 0) return fputs(dsa_abi_json(), stdout) < 0;
  CHECK(dsa_version() == DSA_VERSION_MAJOR * 10000 + DSA_VERSION_MINOR * 100 + DSA_VERSION_PATCH);
  snprintf(version, sizeof(version), "%d.%d.%d ", DSA_VERSION_MAJOR, DSA_VERSION_MINOR, DSA_VERSION_PATCH);
  CHECK(strncmp(dsa_version_string(), version, strlen(version)) == 0);
  CHECK(dsa_api_level() == DSA_API_LEVEL);
  CHECK(dsa_has_feature("cpu") == 1 && dsa_has_feature("sound") == 0 && dsa_has_feature(NULL) == 0);
  CHECK(strcmp(dsa_status_name(DSA_ERROR_BUSY), "DSA_ERROR_BUSY") == 0);
  CHECK(strcmp(dsa_status_name(DSA_OK), "DSA_OK") == 0);
  CHECK(strcmp(dsa_status_name(12345), "DSA_STATUS_UNKNOWN") == 0);
  CHECK(dsa_last_error(&error) == DSA_OK && error.code == 0 && error.message.ptr != NULL);
  CHECK(dsa_last_error(NULL) == DSA_ERROR_ARGUMENT);

  CHECK(dsa_runtime_create(NULL, NULL) == DSA_ERROR_ARGUMENT);
  CHECK(dsa_runtime_create(NULL, &runtime) == DSA_OK);
  CHECK(dsa_runtime_count_devices(runtime, &count) == DSA_OK && count >= 1);
  CHECK(dsa_runtime_get_device(runtime, 0, &device) == DSA_OK && device.usable == 1);
  CHECK(strcmp(device.id.ptr, "cpu:0") == 0 && device.total_bytes > 0);
  CHECK(dsa_runtime_get_device(runtime, count, &device) == DSA_ERROR_ARGUMENT);

  CHECK(dsa_package_open(runtime, &source, &package) == DSA_ERROR_ARGUMENT);
  source.path.ptr = "/nowhere/at/all";
  source.path.len = strlen(source.path.ptr);
  CHECK(dsa_package_open(runtime, &source, &package) == DSA_ERROR_NOT_FOUND && package == NULL);
  CHECK(dsa_last_error(&error) == DSA_OK && error.code == DSA_ERROR_NOT_FOUND && error.message.len > 0);
  CHECK(dsa_model_load_path(runtime, "/nowhere", NULL, NULL, &model) == DSA_ERROR_NOT_FOUND && model == NULL);
  CHECK(dsa_model_load_path(runtime, "\xff", NULL, NULL, &model) == DSA_ERROR_UTF8);
  CHECK(dsa_model_load(NULL, NULL, NULL, NULL, NULL, &model) == DSA_ERROR_ARGUMENT);

  CHECK(dsa_prompt_create(runtime, &prompt) == DSA_OK);
  CHECK(dsa_prompt_text(prompt, "x", 1) == DSA_ERROR_STATE);
  CHECK(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
  CHECK(dsa_prompt_text(prompt, "x", DSA_NTS) == DSA_OK);
  dsa_runtime_release(runtime); /* the prompt keeps it */
  CHECK(dsa_prompt_text(prompt, "y", DSA_NTS) == DSA_OK);
  dsa_prompt_release(prompt);

  dsa_runtime_release(NULL);
  dsa_package_release(NULL);
  dsa_model_release(NULL);
  dsa_session_release(NULL);
  dsa_run_release(NULL);
  dsa_prompt_release(NULL);
  return 0;
}
