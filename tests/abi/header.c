/* dsa_sdk.h twice, every struct initialized; compiled as C and as C++. */
#include "dsa_sdk.h"

typedef void (*any_function)(void);

int main(void) {
  dsa_runtime_options a = DSA_INIT(dsa_runtime_options);
  dsa_source b = DSA_INIT(dsa_source);
  dsa_load_options c = DSA_INIT(dsa_load_options);
  dsa_session_options d = DSA_INIT(dsa_session_options);
  dsa_run_options e = DSA_INIT(dsa_run_options);
  dsa_sampling f = DSA_SAMPLING_INIT;
  dsa_error g = DSA_INIT(dsa_error);
  dsa_event h = DSA_INIT(dsa_event);
  dsa_result i = DSA_INIT(dsa_result);
  return a.struct_size + b.struct_size + c.struct_size + d.struct_size + e.struct_size + f.struct_size +
                     g.struct_size + h.struct_size + i.struct_size ==
                 0
             ? 1
             : 0;
}
