/* dsa_sdk.h: runs sparse-attention language models inside your own process. This file is the manual.
 *
 * A complete program, `cc ask.c -ldsa_sdk && ./a.out MODEL_FOLDER "Who are you?"`:
 *
 *     #include <stdio.h>
 *     #include "dsa_sdk.h"
 *
 *     static int32_t show(void *ud, const dsa_event *e) {
 *       (void)ud;
 *       if (e->type == DSA_EVENT_TEXT && e->channel == DSA_CHANNEL_ANSWER) fwrite(e->text.ptr, 1, e->text.len, stdout);
 *       return DSA_CONTINUE;
 *     }
 *     static int failed(void) {
 *       dsa_error e = DSA_INIT(dsa_error);
 *       dsa_last_error(&e);
 *       fprintf(stderr, "%s: %s\n", dsa_status_name(e.code), e.message.ptr);
 *       return 1;
 *     }
 *     int main(int argc, char **argv) {
 *       dsa_runtime *runtime = NULL; dsa_model *model = NULL; dsa_session *session = NULL;
 *       if (argc < 3 || dsa_runtime_create(NULL, &runtime) < 0 ||
 *           dsa_model_load_path(runtime, argv[1], NULL, NULL, &model) < 0 ||
 *           dsa_session_create(model, NULL, &session) < 0 ||
 *           dsa_session_ask(session, argv[2], DSA_NTS, show, NULL) < 0) return failed();
 *       dsa_session_release(session); dsa_model_release(model); dsa_runtime_release(runtime);
 *       return 0;
 *     }
 *
 * Contents: 1 version, types, handles - 2 status and error - 3 callbacks - 4 structs - 5 library - 6 runtime -
 *           7 package - 8 model - 9 prompt - 10 session - 11 run
 *
 * Rules that hold everywhere:
 *   - `if (st < 0)` is the whole error check; dsa_last_error() has the details. A failed call changes nothing: its out
 *     parameters and its session are as they were.
 *   - `T x = DSA_INIT(T);` prepares a struct. Zero is the default of every input field; NULL options are all defaults.
 *     A field marked "reserved" must be zero in this version; anything else is DSA_ERROR_UNSUPPORTED.
 *   - A call that returns a handle gives you one reference; _release drops it, accepts NULL and never waits for work.
 *     Children hold their parents, so any order of release is correct, on any thread.
 *   - A `const` handle in a signature means: callable from many threads at once.
 *   - Text is UTF-8. Text that the library returns always has a NUL behind it.
 *   - No library lock is held while a callback runs. After fork() each call in the child is DSA_ERROR_FORKED.
 *   - Every call can also fail with DSA_ERROR_ARGUMENT (a NULL or impossible argument), DSA_ERROR_ABI (a struct_size
 *     that cannot be, or a newer struct whose unknown part is in use), DSA_ERROR_UNSUPPORTED (an unknown flag or a
 *     reserved field in use), DSA_ERROR_OUT_OF_MEMORY, DSA_ERROR_FORKED, DSA_ERROR_REENTRANT (from a callback that may
 *     not call it) and DSA_ERROR_INTERNAL (a defect of the library). The blocks below list what is special to a call.
 */
#ifndef DSA_SDK_H
#define DSA_SDK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1 version, types, handles ------------------------------------------------------------------------------- */

#define DSA_VERSION_MAJOR 0
#define DSA_VERSION_MINOR 2
#define DSA_VERSION_PATCH 0
#define DSA_API_LEVEL     4   /* grows by one whenever a symbol or a field is added */

#if defined(DSA_STATIC)
#  define DSA_API
#elif defined(_WIN32) && defined(DSA_BUILDING)
#  define DSA_API __declspec(dllexport)
#elif defined(_WIN32)
#  define DSA_API __declspec(dllimport)
#else
#  define DSA_API __attribute__((visibility("default")))
#endif

typedef int32_t dsa_status;   /* 0 done, above 0 done with a remark, below 0 failed      */
typedef int32_t dsa_token;
typedef struct dsa_str { const char *ptr; size_t len; } dsa_str;   /* UTF-8; ptr[len] is 0 */
#define DSA_NTS     ((size_t)-1)    /* text length argument: "it ends with a NUL"        */
#define DSA_FOREVER ((int64_t)-1)   /* timeout argument, milliseconds                    */

typedef struct dsa_runtime dsa_runtime;   /* devices, threads, log of one user of the library */
typedef struct dsa_package dsa_package;   /* a model on disk: headers read, no weights    */
typedef struct dsa_plan    dsa_plan;      /* a costed placement of a package on a machine */
typedef struct dsa_model   dsa_model;     /* loaded weights and their scheduler           */
typedef struct dsa_session dsa_session;   /* one conversation                             */
typedef struct dsa_prompt  dsa_prompt;    /* messages being put together                  */
typedef struct dsa_image   dsa_image;     /* a picture, identified by its content         */
typedef struct dsa_grammar dsa_grammar;   /* none exist yet, pass NULL                    */
typedef struct dsa_run     dsa_run;       /* one generation in flight                     */
typedef struct dsa_op      dsa_op;        /* one long operation                           */

/* Extension chain of input structs. An unknown entry is skipped, unless its type has
 * DSA_EXT_REQUIRED set: then the call fails with DSA_ERROR_UNSUPPORTED.                 */
typedef struct dsa_ext { uint32_t type; uint32_t struct_size; const struct dsa_ext *next; } dsa_ext;
#define DSA_EXT_REQUIRED 0x80000000u

#define DSA_IN  uint32_t struct_size; uint32_t flags; const dsa_ext *next;  /* you fill it  */
#define DSA_OUT uint32_t struct_size; uint32_t flags;                       /* we fill it   */
#if defined(__cplusplus)
extern "C++" {
template <class T> inline T dsa_init() { T t = T(); t.struct_size = (uint32_t)sizeof(T); return t; }
}
#  define DSA_INIT(T) dsa_init<T>()
#else
#  define DSA_INIT(T) { .struct_size = (uint32_t)sizeof(T) }
#endif                                                /* T x = DSA_INIT(T); the rest is zero */

/* ---- 2 status and error -------------------------------------------------------------------------------------- */

enum {
  DSA_OK = 0,
  /* remarks: the call did its work */
  DSA_PENDING  = 1,             /* nothing yet: a timeout passed                         */
  DSA_END      = 2,             /* there is nothing more                                 */
  DSA_PARTIAL  = 3,             /* the buffer took a part; the count is the whole        */
  DSA_REBUILT  = 4,             /* recomputed from text instead of restored              */
  DSA_DEGRADED = 5,             /* works, on a slower placement that you allowed         */
  /* -1xx the caller */
  DSA_ERROR_ARGUMENT     = -101,
  DSA_ERROR_ABI          = -102, /* header and library do not fit                        */
  DSA_ERROR_STATE        = -103, /* not now: wrong order of calls                        */
  DSA_ERROR_BUSY         = -104, /* the session is in use by another call                */
  DSA_ERROR_REENTRANT    = -105, /* not from inside this callback                        */
  DSA_ERROR_CLOSED       = -106, /* the model behind this handle was closed              */
  DSA_ERROR_FORKED       = -107, /* we are in a child process made by fork()             */
  DSA_ERROR_UNSUPPORTED  = -108, /* this model, build or device cannot do that           */
  /* -2xx room */
  DSA_ERROR_OUT_OF_MEMORY        = -201, /* host memory or the page pool                 */
  DSA_ERROR_OUT_OF_DEVICE_MEMORY = -202,
  DSA_ERROR_OVER_BUDGET          = -203, /* would break a ceiling that you set           */
  DSA_ERROR_DISK_FULL            = -204,
  DSA_ERROR_CONTEXT_FULL         = -205,
  DSA_ERROR_LIMIT                = -206, /* an input is larger than allowed              */
  DSA_ERROR_QUEUE_FULL           = -207,
  /* -3xx files */
  DSA_ERROR_NOT_FOUND    = -301,
  DSA_ERROR_ACCESS       = -302,
  DSA_ERROR_IO           = -303,
  DSA_ERROR_CORRUPT      = -304, /* damaged or truncated                                 */
  DSA_ERROR_HASH         = -305, /* not the content that you expected                    */
  DSA_ERROR_FORMAT       = -306, /* a format or version that we do not read              */
  DSA_ERROR_MODEL        = -307, /* readable, but the parts contradict each other        */
  DSA_ERROR_MISMATCH     = -308, /* a saved session of another model                     */
  /* -4xx devices */
  DSA_ERROR_NO_DEVICE    = -401,
  DSA_ERROR_DRIVER       = -402, /* absent or too old                                    */
  DSA_ERROR_BACKEND      = -403, /* a device module is absent or has no kernel for it    */
  DSA_ERROR_DEVICE_LOST  = -404, /* reset, unplugged, driver update, sleep               */
  DSA_ERROR_DEVICE_FAULT = -405, /* a kernel failed                                      */
  DSA_ERROR_NUMERIC      = -406, /* NaN or infinity where there must be none             */
  /* -5xx content */
  DSA_ERROR_UTF8         = -501,
  DSA_ERROR_IMAGE        = -502,
  DSA_ERROR_SCHEMA       = -503,
  DSA_ERROR_TEMPLATE     = -504,
  DSA_ERROR_JSON         = -505,
  /* -6xx flow */
  DSA_ERROR_CANCELLED    = -601,
  DSA_ERROR_DEADLINE     = -602,
  DSA_ERROR_CALLBACK     = -603, /* a callback of yours reported a failure               */
  /* -9xx the library */
  DSA_ERROR_INTERNAL     = -901,
  DSA_ERROR_WORKER_LOST  = -902  /* the isolated process ended                           */
};

enum { DSA_FIX_NONE, DSA_FIX_INPUT, DSA_FIX_SHORTEN, DSA_FIX_LOWER_BUDGET, DSA_FIX_FREE_MEMORY,
       DSA_FIX_UPDATE_DRIVER, DSA_FIX_DOWNLOAD_AGAIN, DSA_FIX_RESUME, DSA_FIX_RESTART_PROCESS,
       DSA_FIX_RETRY, DSA_FIX_REPORT };

typedef struct dsa_error {
  DSA_OUT
  int32_t  code;                /* the dsa_status                                        */
  int32_t  fix;                 /* DSA_FIX_*: what a program can do about it             */
  int64_t  native;              /* errno, CUresult or Win32 code; 0 if there is none     */
  uint64_t needed, available;   /* bytes or tokens, with the -2xx codes                  */
  uint64_t position;            /* byte offset, with JSON, schema, text and file codes   */
  dsa_str  message;             /* English, one sentence, for logs; never parse it       */
} dsa_error;

/* ---- 3 callbacks --------------------------------------------------------------------------------------------- */

struct dsa_progress;
struct dsa_event;

/* The log sink: from any thread, one call at a time. May call nothing of this library. */
typedef void    (*dsa_log_fn)(void *ud, int32_t level, const char *where, const char *line);
/* An event is there. Runs on a library thread; may cancel runs, nothing else: post a message and return. */
typedef void    (*dsa_wakeup_fn)(void *ud);
/* First and last call of each library thread, on that thread. May call nothing of this library. */
typedef void    (*dsa_thread_fn)(void *ud, const char *name, int32_t entering);
/* The library is done with memory that you lent it. */
typedef void    (*dsa_free_fn)(void *ud, const void *data);
typedef int64_t (*dsa_read_fn)(void *ud, const char *name, uint64_t at, void *dst, size_t n);
/* These two run on the thread that called the blocking function. They may cancel, retain, release, read info and
 * statistics, and use other sessions; changing the same session is DSA_ERROR_REENTRANT. They answer DSA_CONTINUE or
 * DSA_STOP_*; a negative answer (or a C++ exception) stops with rollback and the blocking call returns
 * DSA_ERROR_CALLBACK. */
typedef int32_t (*dsa_progress_fn)(void *ud, const struct dsa_progress *p);
typedef int32_t (*dsa_event_fn)(void *ud, const struct dsa_event *e);

enum { DSA_CONTINUE = 0, DSA_STOP_KEEP = 1, DSA_STOP_ROLLBACK = 2 };

typedef struct dsa_allocator {          /* host memory only; must be callable from any thread */
  void *ud;
  void *(*alloc)(void *ud, size_t n, size_t align, uint32_t tag);
  void  (*release)(void *ud, void *p, size_t n, size_t align, uint32_t tag);
} dsa_allocator;

/* ---- 4 structs ----------------------------------------------------------------------------------------------- */

enum { DSA_ISOLATE_NONE, DSA_ISOLATE_PROCESS };
enum { DSA_LOG_OFF, DSA_LOG_ERROR, DSA_LOG_WARNING, DSA_LOG_INFO, DSA_LOG_DEBUG };

typedef struct dsa_runtime_options {
  DSA_IN
  int32_t       isolation;      /* reserved: DSA_ISOLATE_NONE                            */
  int32_t       log_level;      /* DSA_LOG_OFF: the library is silent                    */
  dsa_log_fn    log;            /* called from any thread, never two at once             */
  void         *log_ud;
  dsa_thread_fn on_thread;      /* each library thread calls it first and last           */
  void         *on_thread_ud;
  const dsa_allocator *host_allocator;   /* reserved                                     */
  dsa_str       module_dir;     /* device modules; empty: the folder of this library     */
  dsa_str       cache_dir;      /* reserved                                              */
  uint32_t      max_threads;    /* per model; 0: all cores but one                       */
  uint32_t      reserved;
} dsa_runtime_options;

typedef struct dsa_device_info {
  DSA_OUT
  dsa_str  id;                  /* stable: "cpu:0", "cuda:GPU-<uuid>"                    */
  dsa_str  name, driver;
  dsa_str  why_not;             /* empty when usable, else one sentence                  */
  int32_t  why_not_code;        /* the status that loading on it would give              */
  int32_t  usable;              /* 1 only after a kernel ran on it                       */
  int32_t  integrated, drives_display;
  uint64_t total_bytes, free_bytes;
} dsa_device_info;

typedef struct dsa_source {     /* where bytes are                                       */
  DSA_IN
  dsa_str     path;             /* UTF-8 on every system                                 */
  dsa_read_fn read;             /* reserved                                              */
  void       *read_ud;          /* reserved                                              */
  dsa_free_fn read_done;        /* reserved                                              */
  dsa_str     sha256;           /* reserved                                              */
} dsa_source;

typedef struct dsa_package_info {
  DSA_OUT
  dsa_str  name, family, license, content_id;   /* content_id: of config and headers     */
  uint64_t parameters, active_parameters, weight_bytes, expert_bytes;
  uint32_t layers, experts, experts_per_token, max_context;
  uint32_t has_images, has_tools, has_reasoning, has_draft;   /* 1: usable here          */
  uint64_t kv_bytes_per_token, checkpoint_bytes;
} dsa_package_info;

typedef struct dsa_budget {     /* ceilings, never exceeded; 0: choose from what is free; level 4 */
  DSA_IN
  uint64_t device_bytes, host_bytes, disk_cache_bytes;   /* no disk cache is written     */
  uint64_t leave_device_bytes, leave_host_bytes;     /* always leave that much to others */
} dsa_budget;

enum { DSA_TIER_DEVICE, DSA_TIER_HOST, DSA_TIER_DISK };
enum { DSA_GOAL_BALANCED, DSA_GOAL_FIRST_TOKEN, DSA_GOAL_THROUGHPUT, DSA_GOAL_QUIET };
/* How a cache keeps its values. DSA_KV_MODEL: f32 on the CPU, bf16 on a GPU. DSA_KV_FP8: latents as E4M3 with a scale
   for each 128 values, their rotary part and everything else as bf16; a model without latents refuses it with
   DSA_ERROR_UNSUPPORTED. */
enum { DSA_KV_MODEL, DSA_KV_BF16, DSA_KV_FP8 };
enum { DSA_BOUND_NONE, DSA_BOUND_COMPUTE, DSA_BOUND_DEVICE_MEMORY, DSA_BOUND_COPY, DSA_BOUND_DISK,
       DSA_BOUND_HOST, DSA_BOUND_QUEUE, DSA_BOUND_CONSUMER };

typedef struct dsa_plan_request {   /* level 4                                           */
  DSA_IN
  const dsa_budget *budget;     /* NULL: all zero                                        */
  const dsa_str    *device_ids; /* NULL: choose; at most one in this version             */
  size_t            num_device_ids;
  uint32_t context_tokens;      /* 0: the longest that fits                              */
  uint32_t sessions;            /* conversations at the same time; 0: 1                  */
  uint32_t images_per_turn, typical_prompt_tokens;   /* reserved                         */
  int32_t  kv_format;           /* of the cache: DSA_KV_*                                */
  int32_t  goal;                /* reserved: DSA_GOAL_BALANCED                           */
} dsa_plan_request;

typedef struct dsa_plan_summary {   /* level 4                                           */
  DSA_OUT
  int32_t  feasible;            /* 0: dsa_plan_explain says what is missing              */
  int32_t  bound;               /* DSA_BOUND_*: what limits the speed                    */
  uint32_t context_tokens, sessions;
  uint64_t device_bytes, host_bytes, disk_bytes_per_token;   /* with full contexts       */
  float    load_seconds, first_token_seconds, tokens_per_second;   /* reserved           */
  float    forecast_error;      /* reserved                                              */
  float    experts_on_device, experts_on_host;       /* shares, 0 to 1; the rest is disk */
} dsa_plan_summary;

enum { DSA_TEXT_CONTROL = 1 };
enum { DSA_READY_FIRST_TOKEN, DSA_READY_RESIDENT };
enum { DSA_REPRO_FAST, DSA_REPRO_STABLE };
enum { DSA_VERIFY_HEADERS, DSA_VERIFY_IN_BACKGROUND, DSA_VERIFY_BEFORE_USE };

typedef struct dsa_load_options {
  DSA_IN
  int32_t  ready_when;          /* reserved: DSA_READY_FIRST_TOKEN                       */
  int32_t  repro;               /* reserved: DSA_REPRO_FAST                              */
  int32_t  allow_fallback;      /* 0 or 1; there is nothing to fall back to yet          */
  int32_t  verify;              /* reserved: DSA_VERIFY_HEADERS                          */
  uint32_t queue_limit;         /* runs waiting; 0: 64                                   */
  uint32_t checkpoint_limit;    /* reserved                                              */
  dsa_str  expert_profile;      /* reserved                                              */
  dsa_str  chat_template;       /* reserved                                              */
} dsa_load_options;

enum { DSA_STAGE_OPEN, DSA_STAGE_WEIGHTS, DSA_STAGE_EXPERTS, DSA_STAGE_WARM_UP, DSA_STAGE_SAVE,
       DSA_STAGE_RESTORE, DSA_STAGE_PREFILL, DSA_STAGE_VERIFY, DSA_STAGE_IMAGE };

typedef struct dsa_progress {
  DSA_OUT
  uint64_t done, total;         /* bytes or tokens; done never goes back within a stage  */
  int32_t  stage, usable;       /* usable: sessions may already run                      */
} dsa_progress;

typedef struct dsa_model_stats {
  DSA_OUT
  uint64_t device_bytes, host_bytes, disk_cache_bytes, kv_bytes, checkpoint_bytes, expert_bytes;
  uint64_t prompt_tokens, output_tokens, runs, cancelled, failed;
  uint32_t running, queued, sessions;
  int32_t  state;               /* DSA_MODEL_*                                           */
  float    expert_hit_rate, draft_accept_rate;
  uint64_t images_encoded;      /* pictures that passed the vision tower; level 2        */
  uint64_t image_hits;          /* pictures of runs that were found encoded; level 2     */
  uint64_t expert_rows;         /* that experts multiplied, of runs that ended; level 4  */
  uint64_t expert_rows_fp8;     /* of these, rounded to FP8 as a GPU does; level 4       */
  uint64_t fp8_workspace_bytes; /* where experts are expanded; in device_bytes; level 4  */
} dsa_model_stats;
enum { DSA_MODEL_LOADING, DSA_MODEL_READY, DSA_MODEL_SUSPENDED, DSA_MODEL_LOST, DSA_MODEL_CLOSED };

enum { DSA_OVERFLOW_ERROR, DSA_OVERFLOW_FINISH, DSA_OVERFLOW_DROP_TURNS };
enum { DSA_CACHE_SHARED, DSA_CACHE_PRIVATE };
enum { DSA_SESSION_IDLE, DSA_SESSION_RUNNING, DSA_SESSION_REBUILD, DSA_SESSION_CLOSED };

typedef struct dsa_session_options {
  DSA_IN
  uint32_t context_tokens;      /* 0: the plan's; without one the model's, at most 32768 */
  uint32_t keep_messages;       /* reserved                                              */
  int32_t  overflow;            /* DSA_OVERFLOW_ERROR or _FINISH; _DROP_TURNS: reserved  */
  int32_t  keep_reasoning;      /* 0 or 1: kept as generated; -1 drop: reserved          */
  int32_t  cache;               /* reserved: DSA_CACHE_SHARED                            */
  uint32_t reserved;
  dsa_str  journal;             /* reserved                                              */
} dsa_session_options;

typedef struct dsa_session_info {
  DSA_OUT
  uint32_t num_tokens, max_tokens, turns, images, checkpoints;
  int32_t  state, tier;         /* DSA_SESSION_*, DSA_TIER_*                             */
  uint32_t reserved;
  uint64_t device_bytes, host_bytes, disk_bytes, shared_bytes;
} dsa_session_info;

enum { DSA_PIXELS_RGB8, DSA_PIXELS_RGBA8, DSA_PIXELS_BGRA8, DSA_PIXELS_BGR8, DSA_PIXELS_GRAY8 };

typedef struct dsa_pixels {     /* level 2                                               */
  DSA_IN
  const void *data;
  uint32_t    width, height;
  size_t      stride;           /* bytes from row to row; 0: tight                       */
  int32_t     format;           /* DSA_PIXELS_*                                          */
  int32_t     orientation;      /* EXIF 1 to 8; 0: upright                               */
  dsa_free_fn release;          /* called once, when the pixels are not needed any more  */
  void       *release_ud;
} dsa_pixels;

typedef struct dsa_image_options {      /* level 2                                        */
  DSA_IN
  uint32_t max_side;            /* 0: no limit but that of the model                     */
  uint32_t max_tokens;          /* reserved                                              */
  int32_t  refuse_too_large;    /* 0: a side beyond max_side is shrunk to it             */
  uint32_t reserved;
  uint64_t max_encoded_bytes, max_pixels;            /* 0: 64 MiB, 100 million           */
} dsa_image_options;

enum { DSA_ROLE_SYSTEM, DSA_ROLE_USER, DSA_ROLE_ASSISTANT, DSA_ROLE_TOOL };

typedef struct dsa_prompt_cost {
  DSA_OUT
  uint32_t text_tokens, image_tokens, num_tokens, reusable_tokens;
  int32_t  fits;
  float    prefill_seconds;     /* forecast from the runs so far; 0: nothing ran yet     */
} dsa_prompt_cost;

enum { DSA_SAMPLE_MODEL, DSA_SAMPLE_GREEDY, DSA_SAMPLE_CUSTOM };

/* Order: bias, penalties, top_k, top_p, min_p, temperature, draw. */
typedef struct dsa_sampling {
  DSA_IN
  int32_t  mode;                /* MODEL: as the package advises; only CUSTOM reads on   */
  uint32_t top_k;               /* 0: off                                                */
  float    temperature;         /* 0: always the most likely token, lowest id on a tie   */
  float    top_p, min_p;        /* 1, 0: off; top_p 0 keeps the best token               */
  float    typical_p;           /* reserved: 1                                           */
  float    repeat_penalty, presence_penalty, frequency_penalty;    /* 1, 0, 0: off       */
  float    dry_strength;        /* reserved: 0                                           */
  uint32_t repeat_window;       /* last tokens that penalties look at, prompt included   */
  uint32_t num_bias;
  const dsa_token *bias_tokens;
  const float     *bias_values; /* added to the logits; -INFINITY forbids                */
} dsa_sampling;
#define DSA_SAMPLING_INIT \
  { (uint32_t)sizeof(dsa_sampling), 0, 0, DSA_SAMPLE_CUSTOM, 0, 1.f, 1.f, 0.f, 1.f, \
    1.f, 0.f, 0.f, 0.f, 64, 0, 0, 0 }

enum { DSA_PRIORITY_NORMAL, DSA_PRIORITY_INTERACTIVE, DSA_PRIORITY_BACKGROUND };
enum { DSA_FEED_APPEND, DSA_FEED_FULL_HISTORY };
enum { DSA_TOOLS_AUTO, DSA_TOOLS_NONE, DSA_TOOLS_REQUIRED };
enum { DSA_EFFORT_MODEL, DSA_EFFORT_NONE, DSA_EFFORT_LOW, DSA_EFFORT_MEDIUM, DSA_EFFORT_HIGH };

typedef struct dsa_run_options {
  DSA_IN
  const dsa_sampling *sampling; /* NULL: as the package advises                          */
  const dsa_grammar  *grammar;  /* reserved                                              */
  const dsa_str      *stops;    /* text that ends the answer and is not part of it       */
  size_t   num_stops;           /* at most 64, none empty, each at most 4096 bytes       */
  uint64_t seed;                /* 0: draw one; the result names it                      */
  uint32_t max_tokens;          /* 0: until the model stops                              */
  uint32_t max_reasoning_tokens;                     /* reserved                         */
  uint32_t deadline_ms;         /* from the start of the call; 0: no limit               */
  int32_t  effort;              /* MODEL, or NONE: no reasoning; the others: reserved    */
  int32_t  tools;               /* AUTO, or NONE: the prompt's are not offered; REQUIRED: reserved */
  int32_t  feed;                /* reserved: DSA_FEED_APPEND                             */
  int32_t  priority;            /* BACKGROUND waits while runs of other classes work     */
  int32_t  speculation;         /* 0 automatic, -1 off, n: reserved                      */
  uint32_t top_logprobs;        /* reserved                                              */
  uint32_t reserved;
  dsa_wakeup_fn on_ready;       /* NULL: you poll or wait                                */
  void    *on_ready_ud;
} dsa_run_options;

/* dsa_run_start -> START -> PREFILL* -> (TEXT | TOOL_BEGIN TOOL_ARGUMENTS* TOOL_END | NOTICE)* -> DONE -> DSA_END. Later
 * versions add to this list: have a default branch. Notices are not sent yet. TOOL events, level 3: `index` counts the
 * calls of the run, `text` of TOOL_BEGIN is the tool's name, of TOOL_ARGUMENTS a piece of its arguments; TOOL_END
 * also comes when the answer ends within a call. */
enum { DSA_EVENT_START = 1, DSA_EVENT_PREFILL, DSA_EVENT_TEXT, DSA_EVENT_TOOL_BEGIN,
       DSA_EVENT_TOOL_ARGUMENTS, DSA_EVENT_TOOL_END, DSA_EVENT_NOTICE, DSA_EVENT_DONE };
enum { DSA_CHANNEL_ANSWER, DSA_CHANNEL_REASONING, DSA_CHANNEL_TOOL };
enum { DSA_NOTICE_TURNS_DROPPED = 1, DSA_NOTICE_REBUILT, DSA_NOTICE_PARKED, DSA_NOTICE_SLOWER };
enum { DSA_FINISH_STOP = 1, DSA_FINISH_STOP_TEXT, DSA_FINISH_LENGTH, DSA_FINISH_CONTEXT,
       DSA_FINISH_TOOL, DSA_FINISH_GRAMMAR, DSA_FINISH_CANCELLED, DSA_FINISH_DEADLINE,
       DSA_FINISH_ERROR };

typedef struct dsa_event {
  DSA_OUT
  uint64_t run_id;              /* never reused within a runtime                         */
  int32_t  type, channel;
  int32_t  finish, notice;      /* with DONE; with NOTICE                                */
  dsa_str  text;                /* whole code points; valid until the next call          */
  uint32_t index;               /* of the stop text, of the tool call                    */
  uint32_t num_tokens;          /* that this piece stands for                            */
  uint64_t done, total;         /* with PREFILL, in tokens                               */
} dsa_event;

typedef struct dsa_result {
  DSA_OUT
  dsa_status status;            /* what a blocking call would have returned              */
  int32_t    finish;            /* DSA_FINISH_*                                          */
  uint32_t   stop_index;        /* with STOP_TEXT: which; with STOP and TOOL: the token  */
  uint32_t   tool_calls;        /* those that were cut off included; level 3             */
  uint32_t   prompt_tokens;     /* computed before the answer, the end of the last one included */
  uint32_t   reused_tokens, image_tokens, output_tokens, reasoning_tokens;
  uint32_t   reserved;
  uint64_t   seed, run_id;
} dsa_result;

typedef struct dsa_tool_call {   /* level 3                                               */
  DSA_OUT
  dsa_str id;                   /* names the call in dsa_prompt_tool_result()            */
  dsa_str name;
  dsa_str arguments;            /* a JSON object when valid is 1, else what was written  */
  int32_t complete;             /* 0: the answer ended within the call                   */
  int32_t valid;                /* 1: complete, and the arguments are one JSON object    */
} dsa_tool_call;

typedef struct dsa_run_stats {
  DSA_OUT
  double   queue_ms, prefill_ms, first_token_ms, decode_ms, total_ms;
  double   compute_ms, copy_ms, disk_ms, sample_ms, consumer_ms;   /* where decode_ms went */
  uint64_t disk_bytes, expert_hits, expert_misses, drafted, accepted;
  int32_t  bound, advice;       /* DSA_BOUND_*, DSA_ADVICE_*                             */
} dsa_run_stats;
enum { DSA_ADVICE_NONE, DSA_ADVICE_MORE_DEVICE_MEMORY, DSA_ADVICE_MORE_HOST_MEMORY,
       DSA_ADVICE_FASTER_DISK, DSA_ADVICE_SHORTER_CONTEXT, DSA_ADVICE_FEWER_SESSIONS,
       DSA_ADVICE_READ_FASTER, DSA_ADVICE_SAVE_PROFILE };

/* ---- 5 library: callable at any time, on any thread ---------------------------------------------------------- */

/**
 * The version of the library that is loaded: major * 10000 + minor * 100 + patch.
 *
 * @return The number; cannot fail.
 *
 * Lifetime    A plain value.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API uint32_t dsa_version(void);

/**
 * The same for logs and about boxes, such as "0.2.0 (cpu)".
 *
 * @return The text; cannot fail.
 *
 * Lifetime    As long as the library is loaded.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API const char *dsa_version_string(void);

/**
 * The DSA_API_LEVEL of the library that is loaded; compare it with the level that you need.
 *
 * @return The number; cannot fail.
 *
 * Lifetime    A plain value.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API uint32_t dsa_api_level(void);

/**
 * Every struct, field offset, constant and function as JSON; bindings compare it at import.
 *
 * @return The text; empty if there was no memory to build it.
 *
 * Lifetime    As long as the library is loaded.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API const char *dsa_abi_json(void);

/**
 * Says whether this build can do something: "cpu", "cuda", "images", "tools", "grammars", "plan", "marks", ...
 *
 * @param name  The ability. NULL and unknown names are answered with 0.
 * @return 1 if it can, 0 if not; cannot fail.
 *
 * Lifetime    `name` is borrowed for the call.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API int32_t dsa_has_feature(const char *name);

/**
 * The name of a status, such as "DSA_ERROR_BUSY".
 *
 * @param status  Any number.
 * @return The name, or "DSA_STATUS_UNKNOWN"; never NULL.
 *
 * Lifetime    As long as the library is loaded.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API const char *dsa_status_name(dsa_status status);

/**
 * Details of the last failed call of this thread. Successful calls, and this one, do not disturb them.
 *
 * @param out  Receives them; code 0 if nothing has failed on this thread.
 * @return DSA_OK, or DSA_ERROR_ARGUMENT, DSA_ERROR_ABI.
 *
 * On failure  *out is unchanged.
 * Lifetime    out->message lives until the next failure on this thread.
 * Threading   Any thread; each has its own.
 * Since       level 1
 */
DSA_API dsa_status dsa_last_error(dsa_error *out);

/* ---- 6 runtime: cheap, touches no device until asked; several may exist in a process ------------------------- */

/**
 * Creates a runtime.
 *
 * @param options  NULL: all defaults.
 * @param out      Receives the runtime.
 * @return DSA_OK, or a general failure.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_runtime_release(). Callbacks and their `ud` are used until the last owner is gone:
 *             packages, models and prompts own their runtime too.
 * Threading   Any thread. No thread is started before the first model is loaded.
 * Since       level 1
 */
DSA_API dsa_status dsa_runtime_create(const dsa_runtime_options *options, dsa_runtime **out);

/**
 * One owner more.
 *
 * @param runtime  NULL does nothing.
 *
 * Lifetime    Balance it with dsa_runtime_release().
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API void dsa_runtime_retain(const dsa_runtime *runtime);

/**
 * One owner fewer.
 *
 * @param runtime  NULL does nothing.
 *
 * Lifetime    The handle is not yours any more.
 * Threading   Any thread. Never waits.
 * Since       level 1
 */
DSA_API void dsa_runtime_release(const dsa_runtime *runtime);

/**
 * Replaces log level and sink.
 *
 * @param runtime  The runtime.
 * @param level    DSA_LOG_*.
 * @param log      NULL: silent.
 * @param ud       Passed to `log`.
 * @return DSA_OK, or DSA_ERROR_REENTRANT from inside a log callback.
 *
 * On failure  The old sink stays.
 * Lifetime    When the call returns the old sink is never called again.
 * Threading   Any thread; waits for a log call that is being made.
 * Since       level 1
 */
DSA_API dsa_status dsa_runtime_set_log(const dsa_runtime *runtime, int32_t level, dsa_log_fn log,
                                       void *ud);

/**
 * Counts the devices; unusable ones are listed too, each with its reason.
 *
 * @param runtime  The runtime.
 * @param out      Receives the count. This version knows one: the CPU.
 * @return DSA_OK, or a general failure.
 *
 * On failure  *out is unchanged.
 * Lifetime    A plain value.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_runtime_count_devices(const dsa_runtime *runtime, size_t *out);

/**
 * One entry of that list.
 *
 * @param runtime  The runtime.
 * @param index    Below the count.
 * @param out      Receives the description.
 * @return DSA_OK, or DSA_ERROR_ARGUMENT  there is no such index.
 *
 * On failure  *out is unchanged.
 * Lifetime    The views live as long as the runtime.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_runtime_get_device(const dsa_runtime *runtime, size_t index,
                                          dsa_device_info *out);

/* ---- 7 package: what is on disk; milliseconds, no weights, no device ----------------------------------------- */

/**
 * Opens a model folder: reads headers, config, tokenizer and chat format. Nothing in the folder is trusted.
 *
 * @param runtime  The runtime.
 * @param source   Names the folder in `path`. A folder without a tokenizer opens too; calls that need text then
 *                 answer DSA_ERROR_UNSUPPORTED.
 * @param out      Receives the package.
 * @return DSA_OK, or DSA_ERROR_NOT_FOUND    there is no such folder, or no config or weights in it;
 *                    DSA_ERROR_ACCESS, _IO  a file cannot be read;
 *                    DSA_ERROR_CORRUPT      a file is damaged or truncated;
 *                    DSA_ERROR_JSON         a JSON file is not JSON; `position` says where;
 *                    DSA_ERROR_FORMAT, DSA_ERROR_UNSUPPORTED  an unknown format or family;
 *                    DSA_ERROR_MODEL        the parts contradict each other.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_package_release(). `source` is borrowed for the call.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_package_open(const dsa_runtime *runtime, const dsa_source *source,
                                    dsa_package **out);

/**
 * One owner more.
 *
 * @param package  NULL does nothing.
 *
 * Lifetime    Balance it with dsa_package_release().
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API void dsa_package_retain(const dsa_package *package);

/**
 * One owner fewer.
 *
 * @param package  NULL does nothing.
 *
 * Lifetime    The handle is not yours any more. Loaded models keep what they need.
 * Threading   Any thread. Never waits.
 * Since       level 1
 */
DSA_API void dsa_package_release(const dsa_package *package);

/**
 * Sizes and abilities.
 *
 * @param package  The package.
 * @param out      Receives them.
 * @return DSA_OK, or a general failure.
 *
 * On failure  *out is unchanged.
 * Lifetime    The views live as long as the package.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_package_get_info(const dsa_package *package, dsa_package_info *out);

/**
 * One value of config.json as text. Nested keys are written with a dot: "text_config.hidden_size".
 *
 * @param package  The package.
 * @param key      The key.
 * @param out      Receives the value.
 * @return DSA_OK, or DSA_ERROR_NOT_FOUND  there is no such key, or its value is a list or an object.
 *
 * On failure  *out is unchanged.
 * Lifetime    The view lives as long as the package.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_package_get_meta(const dsa_package *package, const char *key, dsa_str *out);

/* ---- 8 plan: what loading would cost; changes nothing -------------------------------------------------------- */

/**
 * Says where everything would go on this machine as it is now. On a GPU: all weights, state and pages of full contexts.
 * On the CPU: weights that every token reads, state and pages of full contexts, then as many experts as fit; the others
 * are read from the disk.
 *
 * @param package  The package.
 * @param request  NULL: all defaults. Without `device_ids` that is the first usable GPU where all of it fits, else the
 *                 CPU; they name another device: an id of dsa_runtime_get_device(), "cuda", "cuda:0" or "cpu:0". Without
 *                 `context_tokens` the plan has the longest context that leaves room for all weights; where that is
 *                 short, on the CPU, up to 32768 tokens with experts read from the disk.
 * @param out      Receives the plan. One that is not feasible is no failure.
 * @return DSA_OK, or DSA_ERROR_LIMIT      the model reads no context as long as `context_tokens`;
 *                    DSA_ERROR_NO_DEVICE  there is no device of that id;
 *                    DSA_ERROR_DRIVER, _BACKEND, _DEVICE_FAULT  the `why_not_code` of the device that was named.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_plan_release(). `request` is borrowed for the call; the plan holds its package.
 * Threading   Any thread.
 * Since       level 4
 */
DSA_API dsa_status dsa_plan_create(const dsa_package *package, const dsa_plan_request *request,
                                   dsa_plan **out);

/**
 * Gives a plan back.
 *
 * @param plan  NULL does nothing.
 *
 * Lifetime    The handle and its views end here. Models that were loaded with it go on.
 * Threading   Any thread, after the last call on it.
 * Since       level 4
 */
DSA_API void dsa_plan_release(dsa_plan *plan);

/**
 * The numbers in short.
 *
 * @param plan  The plan.
 * @param out   Receives them. `device_bytes` is what dsa_model_get_stats() says after a load.
 * @return DSA_OK, or a general failure.
 *
 * On failure  *out is unchanged.
 * Lifetime    A plain value.
 * Threading   Any thread.
 * Since       level 4
 */
DSA_API dsa_status dsa_plan_get(const dsa_plan *plan, dsa_plan_summary *out);

/**
 * Everything that the plan rests on, as a JSON object: the kernel of each operator on each backend, tensors by name,
 * parameters, bytes of each layer and tier, state, precision, and in "plan" the placement with what would help. The
 * program dsa_inspect prints the same, also for a folder that is not complete.
 *
 * @param plan  The plan.
 * @param json  Receives the text. Keys may be added by later versions.
 * @return DSA_OK, or a general failure.
 *
 * On failure  *json is unchanged.
 * Lifetime    The view lives as long as the plan.
 * Threading   Any thread.
 * Since       level 4
 */
DSA_API dsa_status dsa_plan_explain(const dsa_plan *plan, dsa_str *json);

/* ---- 9 model ------------------------------------------------------------------------------------------------- */

/**
 * Loads a model on the calling thread.
 *
 * @param package   The package.
 * @param plan      Sets the device, the context of sessions that name none, and how many of them the page pool holds.
 *                  NULL: on the CPU, 32768 tokens at most, 16 sessions, and no look at the memory that is free.
 * @param options   NULL: all defaults.
 * @param progress  Called on this thread, at most 20 times a second, with bytes done and total. May be NULL.
 * @param ud        Passed to `progress`.
 * @param out       Receives the model.
 * @return DSA_OK, or DSA_ERROR_CANCELLED    `progress` answered DSA_STOP_KEEP or DSA_STOP_ROLLBACK;
 *                    DSA_ERROR_CALLBACK     `progress` answered with a negative number;
 *                    DSA_ERROR_MODEL        tensors do not fit the config;
 *                    DSA_ERROR_ARGUMENT     `plan` is one of another package;
 *                    DSA_ERROR_OUT_OF_MEMORY, DSA_ERROR_OVER_BUDGET  `plan` is not feasible, without or with a budget;
 *                    DSA_ERROR_OUT_OF_DEVICE_MEMORY  the device has less room than `needed`;
 *                    DSA_ERROR_DRIVER, _BACKEND, _NO_DEVICE  the device of the plan cannot be used.
 *
 * On failure  *out is unchanged and nothing is left behind.
 * Lifetime    Release with dsa_model_release(). The model holds its package and runtime.
 * Threading   Any thread. Starts the library threads of this model.
 * Since       level 1
 */
DSA_API dsa_status dsa_model_load(const dsa_package *package, const dsa_plan *plan,
                                  const dsa_load_options *options, dsa_progress_fn progress,
                                  void *ud, dsa_model **out);

/**
 * Package, default plan and load in one call.
 *
 * @param runtime   The runtime.
 * @param path      The model folder, UTF-8.
 * @param progress  As in dsa_model_load(). May be NULL.
 * @param ud        Passed to `progress`.
 * @param out       Receives the model.
 * @return What dsa_package_open() and dsa_model_load() return.
 *
 * On failure  *out is unchanged and nothing is left behind.
 * Lifetime    Release with dsa_model_release().
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_model_load_path(const dsa_runtime *runtime, const char *path,
                                       dsa_progress_fn progress, void *ud, dsa_model **out);

/**
 * One owner more.
 *
 * @param model  NULL does nothing.
 *
 * Lifetime    Balance it with dsa_model_release().
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API void dsa_model_retain(const dsa_model *model);

/**
 * One owner fewer. Sessions and runs count as owners too; the last one out frees the memory.
 *
 * @param model  NULL does nothing.
 *
 * Lifetime    The handle is not yours any more.
 * Threading   Any thread. Never waits: a library thread frees the memory behind it.
 * Since       level 1
 */
DSA_API void dsa_model_release(const dsa_model *model);

/**
 * Cancels all runs, waits, and frees all memory of the model now, however many handles still exist.
 *
 * @param model       The model.
 * @param timeout_ms  How long to wait; 0 only asks, DSA_FOREVER waits.
 * @return DSA_OK, also if it was closed before, or DSA_PENDING          the time passed, the closing goes on;
 *                                                  DSA_ERROR_REENTRANT  from a callback of a run of this model.
 *
 * On failure  Nothing is closed.
 * Lifetime    Handles stay valid; calls on sessions and on the model answer DSA_ERROR_CLOSED. Runs end with DONE, and
 *             their events and results can still be read.
 * Threading   Any thread, any number of them.
 * Since       level 1
 */
DSA_API dsa_status dsa_model_close(const dsa_model *model, int64_t timeout_ms);

/**
 * Present sizes, and counters since loading.
 *
 * @param model  The model.
 * @param out    Receives them.
 * @return DSA_OK, or DSA_ERROR_CLOSED.
 *
 * On failure  *out is unchanged.
 * Lifetime    Plain values.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_model_get_stats(const dsa_model *model, dsa_model_stats *out);

/**
 * Text as tokens.
 *
 * @param model  The model.
 * @param text   UTF-8.
 * @param len    Its bytes, or DSA_NTS.
 * @param flags  0: control tokens in the text stay plain text. DSA_TEXT_CONTROL: they act.
 * @param out    Receives at most `cap` tokens. May be NULL if `cap` is 0.
 * @param cap    Room in `out`.
 * @param count  Receives the number of all tokens.
 * @return DSA_OK, or DSA_PARTIAL            `out` was too small;
 *                    DSA_ERROR_UTF8         not UTF-8; `position` says where;
 *                    DSA_ERROR_UNSUPPORTED  the package has no tokenizer;
 *                    DSA_ERROR_CLOSED.
 *
 * On failure  *out and *count are unchanged.
 * Lifetime    `text` is borrowed for the call.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_model_tokenize(const dsa_model *model, const char *text, size_t len,
                                      uint32_t flags, dsa_token *out, size_t cap, size_t *count);

/**
 * Tokens as bytes, as they are: a cut code point stays cut.
 *
 * @param model   The model.
 * @param tokens  The tokens. May be NULL if `n` is 0.
 * @param n       Their number.
 * @param flags   0: control tokens are left out. DSA_TEXT_CONTROL: they are shown by name.
 * @param out     Receives at most `cap` bytes, without a NUL. May be NULL if `cap` is 0.
 * @param cap     Room in `out`.
 * @param len     Receives the number of all bytes.
 * @return DSA_OK, or DSA_PARTIAL            `out` was too small;
 *                    DSA_ERROR_ARGUMENT     a token that does not exist; `position` is its index;
 *                    DSA_ERROR_UNSUPPORTED  the package has no tokenizer;
 *                    DSA_ERROR_CLOSED.
 *
 * On failure  *out and *len are unchanged.
 * Lifetime    `tokens` is borrowed for the call.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_model_detokenize(const dsa_model *model, const dsa_token *tokens, size_t n,
                                        uint32_t flags, char *out, size_t cap, size_t *len);

/* ---- 10 long operations -------------------------------------------------------------------------------------- */

/**
 * Waits until an operation has ended, and says how.
 *
 * @param op          The operation.
 * @param timeout_ms  Milliseconds; 0 polls, DSA_FOREVER waits for ever.
 * @param progress    NULL, or receives how far it is.
 * @return DSA_PENDING  it goes on; or the status of the operation: DSA_OK, or why it failed.
 *
 * On failure  Nothing changes; dsa_op_get_error() has the details.
 * Lifetime    Plain values.
 * Threading   Any thread, several at once.
 * Since       level 2
 */
DSA_API dsa_status dsa_op_wait(const dsa_op *op, int64_t timeout_ms, dsa_progress *progress);

/**
 * Stops an operation: it undoes itself and ends with DSA_ERROR_CANCELLED, unless it has ended already.
 *
 * @param op  The operation.
 * @return DSA_OK.
 *
 * On failure  Nothing changes.
 * Lifetime    -
 * Threading   Any thread, any time, also from a wake-up. Does not wait.
 * Since       level 2
 */
DSA_API dsa_status dsa_op_cancel(const dsa_op *op);

/**
 * Why an operation failed.
 *
 * @param op   The operation.
 * @param out  Receives it; code 0 if it did not fail.
 * @return DSA_OK, or DSA_PENDING  it has not ended.
 *
 * On failure  *out is unchanged.
 * Lifetime    out->message lives as long as the operation.
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API dsa_status dsa_op_get_error(const dsa_op *op, dsa_error *out);

/**
 * Lets an operation go.
 *
 * @param op  NULL does nothing. An operation that has not ended is cancelled.
 *
 * Lifetime    The handle is not yours any more.
 * Threading   Any thread. Never waits.
 * Since       level 2
 */
DSA_API void dsa_op_release(dsa_op *op);

/* ---- 11 images: decoded once, shareable by prompts, sessions and models ------------------------------------------ */

/**
 * Reads a picture from a file: see dsa_image_from_memory().
 *
 * @param runtime  The runtime.
 * @param path     UTF-8.
 * @param options  NULL: all defaults.
 * @param out      Receives the picture.
 * @return DSA_OK, or what dsa_image_from_memory() says, or
 *                    DSA_ERROR_NOT_FOUND, DSA_ERROR_ACCESS, DSA_ERROR_IO.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_image_release(). The file is not needed afterwards.
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API dsa_status dsa_image_from_file(const dsa_runtime *runtime, const char *path,
                                       const dsa_image_options *options, dsa_image **out);

/**
 * Reads an encoded picture: JPEG, PNG, WebP, BMP, or GIF, of animations the first frame. The format is told from its
 * first bytes. The EXIF orientation is applied. Structure and size are checked before anything is allocated for the
 * pixels; decoding then takes at most 32 bytes a pixel, 4 times the encoded bytes, and 1 MiB.
 *
 * @param runtime  The runtime.
 * @param data     The bytes of a file.
 * @param len      Their number.
 * @param options  NULL: all defaults.
 * @param out      Receives the picture.
 * @return DSA_OK, or DSA_ERROR_IMAGE          empty, damaged or cut off; `position` says where;
 *                    DSA_ERROR_UNSUPPORTED    another format, which the message names;
 *                    DSA_ERROR_LIMIT          larger than the options allow;
 *                    DSA_ERROR_OUT_OF_MEMORY.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_image_release(). `data` is borrowed for the call.
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API dsa_status dsa_image_from_memory(const dsa_runtime *runtime, const void *data, size_t len,
                                         const dsa_image_options *options, dsa_image **out);

/**
 * Takes pixels, 8 bits a channel.
 *
 * @param runtime  The runtime.
 * @param pixels   Where they are and how they lie.
 * @param options  NULL: all defaults.
 * @param out      Receives the picture.
 * @return DSA_OK, or DSA_ERROR_ARGUMENT       a size, stride, format or orientation that cannot be;
 *                    DSA_ERROR_LIMIT, DSA_ERROR_OUT_OF_MEMORY.
 *
 * On failure  *out is unchanged, and `release` is not called.
 * Lifetime    Release with dsa_image_release(). The pixels are copied. If `release` is set it is called once when they
 *             are not needed any more: in this version before the function returns.
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API dsa_status dsa_image_from_pixels(const dsa_runtime *runtime, const dsa_pixels *pixels,
                                         const dsa_image_options *options, dsa_image **out);

/**
 * One owner more.
 *
 * @param image  NULL does nothing.
 *
 * Lifetime    Balance it with dsa_image_release().
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API void dsa_image_retain(const dsa_image *image);

/**
 * One owner fewer.
 *
 * @param image  NULL does nothing.
 *
 * Lifetime    The handle is not yours any more. Prompts and sessions that show the picture keep it.
 * Threading   Any thread. Never waits.
 * Since       level 2
 */
DSA_API void dsa_image_release(const dsa_image *image);

/**
 * The size of a picture in pixels, upright and after shrinking.
 *
 * @param image   The picture.
 * @param width   Receives the width.
 * @param height  Receives the height.
 * @return DSA_OK.
 *
 * On failure  Nothing changes.
 * Lifetime    Plain values.
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API dsa_status dsa_image_get_size(const dsa_image *image, uint32_t *width, uint32_t *height);

/**
 * The content id of a picture: a hash of its size and pixels. Equal pictures have equal ids, whatever file they came from.
 *
 * @param image  The picture.
 * @param out    Receives the id, 32 hexadecimal digits.
 * @return DSA_OK.
 *
 * On failure  *out is unchanged.
 * Lifetime    The view lives as long as the picture.
 * Threading   Any thread.
 * Since       level 2
 */
DSA_API dsa_status dsa_image_get_id(const dsa_image *image, dsa_str *out);

/**
 * Runs the vision tower of a model over a picture ahead of the question, while no run has work that is not in the
 * background. A run that shows an equal picture later finds it done.
 *
 * @param image  The picture.
 * @param model  The model.
 * @param out    Receives the operation.
 * @return DSA_OK, or DSA_ERROR_UNSUPPORTED  the model reads text only;
 *                    DSA_ERROR_QUEUE_FULL, DSA_ERROR_CLOSED.
 *
 * On failure  *out is unchanged. The operation itself may end with DSA_ERROR_OUT_OF_MEMORY, _CANCELLED or _CLOSED.
 * Lifetime    Release with dsa_op_release(). Picture and model are kept meanwhile.
 * Threading   Any thread. Does not wait.
 * Since       level 2
 */
DSA_API dsa_status dsa_image_prepare(const dsa_image *image, const dsa_model *model, dsa_op **out);

/* ---- 12 prompt: a builder; everything is copied ---------------------------------------------------------------- */

/**
 * An empty prompt. The same prompt may be used for several runs, sessions and models.
 *
 * @param runtime  The runtime.
 * @param out      Receives the prompt.
 * @return DSA_OK, or a general failure.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_prompt_release().
 * Threading   One thread at a time while it is being changed; afterwards many may read it.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_create(const dsa_runtime *runtime, dsa_prompt **out);

/**
 * Frees a prompt. Runs that were started with it do not need it.
 *
 * @param prompt  NULL does nothing.
 *
 * Lifetime    The handle is gone.
 * Threading   Any thread, while no other call uses it.
 * Since       level 1
 */
DSA_API void dsa_prompt_release(dsa_prompt *prompt);

/**
 * Makes it empty again.
 *
 * @param prompt  The prompt.
 * @return DSA_OK, or a general failure.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    -
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_clear(dsa_prompt *prompt);

/**
 * Begins a message; the calls below add to the last one begun.
 *
 * @param prompt  The prompt.
 * @param role    DSA_ROLE_*.
 * @return DSA_OK, or a general failure.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    -
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_message(dsa_prompt *prompt, int32_t role);

/**
 * Adds plain text from anywhere: control tokens in it stay plain text.
 *
 * @param prompt  The prompt.
 * @param text    UTF-8.
 * @param len     Its bytes, or DSA_NTS.
 * @return DSA_OK, or DSA_ERROR_STATE  no message was begun;
 *                    DSA_ERROR_UTF8   not UTF-8; `position` says where;
 *                    DSA_ERROR_LIMIT  more than 64 MiB.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `text` is copied.
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_text(dsa_prompt *prompt, const char *text, size_t len);

/**
 * Adds text that you wrote yourself: control tokens in it act. Never pass user input.
 *
 * @param prompt  The prompt.
 * @param text    UTF-8.
 * @param len     Its bytes, or DSA_NTS.
 * @return As dsa_prompt_text().
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `text` is copied.
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_markup(dsa_prompt *prompt, const char *text, size_t len);

/**
 * Adds raw tokens, for tests and for hosts with a template of their own. Inside a message they are a part of it. Before
 * the first message they stand for themselves: a prompt of such tokens alone passes through no template, and its answer
 * is read without one: every token that is not a control token is answer text.
 *
 * @param prompt  The prompt.
 * @param tokens  The tokens; checked against the vocabulary when the prompt is used.
 * @param n       Their number.
 * @return DSA_OK, or DSA_ERROR_LIMIT  more than 16777216 tokens.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `tokens` is copied.
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_tokens(dsa_prompt *prompt, const dsa_token *tokens, size_t n);

/**
 * Adds a whole message list in the widespread chat JSON: an array of objects with "role" and "content", or an object
 * with such an array as "messages". "content" is a text or an array of {"type": "text", "text": ...} and, since level 2,
 * {"type": "image_url", "image_url": {"url": NAME}}: see dsa_prompt_bind_image(). Since level 3 also "tool_calls" and
 * "reasoning_content" of the assistant, "tool_call_id" of results, and "tools" beside "messages", as in
 * dsa_prompt_set_tools().
 *
 * @param prompt  The prompt.
 * @param json    UTF-8.
 * @param len     Its bytes, or DSA_NTS.
 * @return DSA_OK, or DSA_ERROR_JSON         not JSON, or not such a list; `position` says where it stops being JSON;
 *                    DSA_ERROR_UNSUPPORTED  something in it that would change the prompt and is not read;
 *                    DSA_ERROR_LIMIT        more than 64 MiB.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `json` is copied.
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_add_json(dsa_prompt *prompt, const char *json, size_t len);

/**
 * The reasoning of an earlier answer. The last message begun must be the assistant's. Formats that leave out the
 * reasoning of earlier turns do so.
 *
 * @param prompt  The prompt.
 * @param text    UTF-8.
 * @param len     Its bytes, or DSA_NTS.
 * @return DSA_OK, or DSA_ERROR_STATE  no message of the assistant was begun;
 *                    DSA_ERROR_UTF8, DSA_ERROR_LIMIT.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `text` is copied.
 * Threading   One thread at a time.
 * Since       level 3
 */
DSA_API dsa_status dsa_prompt_reasoning(dsa_prompt *prompt, const char *text, size_t len);

/**
 * A call that an earlier answer made. The last message begun must be the assistant's; calls stand behind its text.
 *
 * @param prompt          The prompt.
 * @param id              Names the call for its result; UTF-8. NULL: none.
 * @param name            The tool; UTF-8.
 * @param arguments_json  One JSON object; UTF-8.
 * @param len             Its bytes, or DSA_NTS.
 * @return DSA_OK, or DSA_ERROR_STATE  no message of the assistant was begun;
 *                    DSA_ERROR_JSON   the arguments are not one JSON object; `position` says where they stop being JSON;
 *                    DSA_ERROR_UTF8, DSA_ERROR_LIMIT.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    Everything is copied.
 * Threading   One thread at a time.
 * Since       level 3
 */
DSA_API dsa_status dsa_prompt_tool_call(dsa_prompt *prompt, const char *id, const char *name,
                                        const char *arguments_json, size_t len);

/**
 * What a tool answered: a message of its own. Results that follow each other are put in the order of their calls.
 *
 * @param prompt  The prompt.
 * @param id      Of the call: of dsa_prompt_tool_call(), of chat JSON, or of the session's last answer.
 * @param text    UTF-8; control tokens in it stay plain text.
 * @param len     Its bytes, or DSA_NTS.
 * @return DSA_OK, or DSA_ERROR_ARGUMENT  the id is empty;
 *                    DSA_ERROR_UTF8, DSA_ERROR_LIMIT.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    Everything is copied.
 * Threading   One thread at a time.
 * Since       level 3
 */
DSA_API dsa_status dsa_prompt_tool_result(dsa_prompt *prompt, const char *id, const char *text,
                                          size_t len);

/**
 * The tools of a conversation, in place of those that were set. Declare them in its first prompt; they hold for the
 * session.
 *
 * @param prompt  The prompt.
 * @param json    An array of {"name": ..., "description": ..., "parameters": SCHEMA}, or of {"type": "function",
 *                "function": {...}} around that; UTF-8. Names are letters, digits, '_', '-', '.' and '/'.
 * @param len     Its bytes, or DSA_NTS.
 * @return DSA_OK, or DSA_ERROR_JSON         not JSON, or not such a list;
 *                    DSA_ERROR_UNSUPPORTED  a tool that is no function;
 *                    DSA_ERROR_ARGUMENT     a name that comes twice;
 *                    DSA_ERROR_UTF8, DSA_ERROR_LIMIT.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `json` is copied.
 * Threading   One thread at a time.
 * Since       level 3
 */
DSA_API dsa_status dsa_prompt_set_tools(dsa_prompt *prompt, const char *json, size_t len);

/**
 * Shows a picture at this place of the message.
 *
 * @param prompt  The prompt.
 * @param image   The picture.
 * @return DSA_OK, or DSA_ERROR_STATE  no message was begun;
 *                    DSA_ERROR_LIMIT  more than 4,096 pictures.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    The prompt keeps the picture.
 * Threading   One thread at a time.
 * Since       level 2
 */
DSA_API dsa_status dsa_prompt_image(dsa_prompt *prompt, const dsa_image *image);

/**
 * Gives a picture to all parts {"type": "image_url", "image_url": {"url": NAME}} of chat JSON, whether they were added
 * before or will be. Nothing is ever fetched. A prompt cannot be run while such a part has no picture, or a bound
 * picture no part: that is DSA_ERROR_ARGUMENT there.
 *
 * @param prompt  The prompt.
 * @param name    UTF-8, as in the JSON.
 * @param image   The picture.
 * @return DSA_OK, or DSA_ERROR_ARGUMENT  the name is empty or has a picture already;
 *                    DSA_ERROR_UTF8;
 *                    DSA_ERROR_LIMIT     more than 4,096 pictures.
 *
 * On failure  The prompt is unchanged.
 * Lifetime    `name` is copied; the prompt keeps the picture.
 * Threading   One thread at a time.
 * Since       level 2
 */
DSA_API dsa_status dsa_prompt_bind_image(dsa_prompt *prompt, const char *name,
                                         const dsa_image *image);

/**
 * What a prompt would cost. Changes nothing.
 *
 * @param prompt   The prompt.
 * @param model    The model.
 * @param session  The session that it would be appended to; NULL: an empty one.
 * @param feed     DSA_FEED_APPEND.
 * @param out      Receives the numbers.
 * @return DSA_OK, or what dsa_run_start() says about the prompt.
 *
 * On failure  *out is unchanged.
 * Lifetime    Plain values.
 * Threading   Any thread, also during a run of the session.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_measure(const dsa_prompt *prompt, const dsa_model *model,
                                      const dsa_session *session, int32_t feed,
                                      dsa_prompt_cost *out);

/**
 * The text that the model would see, control tokens by name, for debugging.
 *
 * @param prompt  The prompt.
 * @param model   The model.
 * @param out     Receives at most `cap` bytes, without a NUL. May be NULL if `cap` is 0.
 * @param cap     Room in `out`.
 * @param len     Receives the number of all bytes.
 * @return DSA_OK, or DSA_PARTIAL            `out` was too small;
 *                    DSA_ERROR_UNSUPPORTED  the package has no tokenizer or no known chat format;
 *                    DSA_ERROR_CLOSED.
 *
 * On failure  *out and *len are unchanged.
 * Lifetime    -
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_prompt_render(const dsa_prompt *prompt, const dsa_model *model, char *out,
                                     size_t cap, size_t *len);

/* ---- 13 session ------------------------------------------------------------------------------------------------ */

/**
 * An empty conversation. Takes no pages before the first run.
 *
 * @param model    The model.
 * @param options  NULL: all defaults.
 * @param out      Receives the session.
 * @return DSA_OK, or DSA_ERROR_LIMIT   context_tokens is more than the model allows; needed and available say it;
 *                    DSA_ERROR_CLOSED.
 *
 * On failure  *out is unchanged.
 * Lifetime    Release with dsa_session_release(). The session holds its model.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_session_create(const dsa_model *model, const dsa_session_options *options,
                                      dsa_session **out);

/**
 * One owner more, for a second thread that cancels or watches.
 *
 * @param session  NULL does nothing.
 *
 * Lifetime    Balance it with dsa_session_release().
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API void dsa_session_retain(const dsa_session *session);

/**
 * One owner fewer. The last one cancels a run in work with DSA_STOP_KEEP.
 *
 * @param session  NULL does nothing.
 *
 * Lifetime    The handle is not yours any more; runs of it stay valid.
 * Threading   Any thread. Never waits.
 * Since       level 1
 */
DSA_API void dsa_session_release(const dsa_session *session);

/**
 * Its sizes and what it is doing.
 *
 * @param session  The session.
 * @param out      Receives them.
 * @return DSA_OK, or DSA_ERROR_CLOSED.
 *
 * On failure  *out is unchanged.
 * Lifetime    Plain values.
 * Threading   Any thread, also during a run.
 * Since       level 1
 */
DSA_API dsa_status dsa_session_get_info(const dsa_session *session, dsa_session_info *out);

/**
 * Stops whatever runs or is being started on the session; later calls are not touched. Meant for blocking calls.
 *
 * @param session  The session.
 * @param how      DSA_STOP_KEEP or DSA_STOP_ROLLBACK, see dsa_run_cancel().
 * @return DSA_OK, also if nothing runs, or DSA_ERROR_CLOSED.
 *
 * On failure  Nothing is stopped.
 * Lifetime    -
 * Threading   Any thread, any time.
 * Since       level 1
 */
DSA_API dsa_status dsa_session_cancel(const dsa_session *session, int32_t how);

/**
 * Computes a prompt without answering: warms up a system prompt or adds context.
 *
 * @param session     The session to extend.
 * @param prompt      Messages. May not be empty.
 * @param progress    Called on this thread with tokens done and total. May be NULL.
 * @param ud          Passed to `progress`.
 * @param num_tokens  Receives the number of tokens appended. May be NULL.
 * @return DSA_OK, or DSA_ERROR_CONTEXT_FULL   the prompt does not fit in context_tokens;
 *                    DSA_ERROR_CANCELLED      dsa_session_cancel() was called or `progress` answered DSA_STOP_*;
 *                    DSA_ERROR_CALLBACK       `progress` answered with a negative number;
 *                    DSA_ERROR_BUSY, DSA_ERROR_REENTRANT, DSA_ERROR_CLOSED;
 *                    what dsa_run_start() says about the prompt, the queue and the room.
 *
 * On failure  The session is as it was before the call, also after a cancel with KEEP; *num_tokens is unchanged.
 * Lifetime    `prompt` is borrowed for the call; nothing in it is kept.
 * Threading   One call that changes a session at a time. Other sessions may run meanwhile.
 * Since       level 1
 */
DSA_API dsa_status dsa_session_prefill(dsa_session *session, const dsa_prompt *prompt,
                                       dsa_progress_fn progress, void *ud, uint32_t *num_tokens);

/**
 * Prompt and answer on the calling thread.
 *
 * @param session   The session.
 * @param prompt    What is new. May not be empty.
 * @param options   NULL: all defaults. `on_ready` is not used here and must be NULL.
 * @param on_event  Called on this thread with every event up to DONE. May be NULL.
 * @param ud        Passed to `on_event`.
 * @param out       Receives the result. May be NULL.
 * @return DSA_OK for every ending that keeps the answer: also limits, a deadline, a cancel with DSA_STOP_KEEP;
 *         `finish` tells which. Or DSA_ERROR_CANCELLED  stopped with DSA_STOP_ROLLBACK;
 *                                  DSA_ERROR_CALLBACK   `on_event` answered with a negative number;
 *                                  DSA_ERROR_NUMERIC, DSA_ERROR_DEVICE_FAULT  the step failed;
 *                                  what dsa_run_start() returns.
 *
 * On failure  The session is as it was before the call; *out is unchanged.
 * Lifetime    Everything is borrowed for the call.
 * Threading   One call that changes a session at a time. Other sessions may run meanwhile.
 * Since       level 1
 */
DSA_API dsa_status dsa_session_generate(dsa_session *session, const dsa_prompt *prompt,
                                        const dsa_run_options *options, dsa_event_fn on_event,
                                        void *ud, dsa_result *out);

/**
 * The same with one user message of plain text and default options.
 *
 * @param session   The session.
 * @param text      UTF-8.
 * @param len       Its bytes, or DSA_NTS.
 * @param on_event  As in dsa_session_generate(). May be NULL.
 * @param ud        Passed to `on_event`.
 * @return What dsa_session_generate() returns, or DSA_ERROR_UTF8.
 *
 * On failure  The session is as it was before the call.
 * Lifetime    `text` is borrowed for the call.
 * Threading   One call that changes a session at a time. Other sessions may run meanwhile.
 * Since       level 1
 */
DSA_API dsa_status dsa_session_ask(dsa_session *session, const char *text, size_t len,
                                   dsa_event_fn on_event, void *ud);

/* ---- 14 run: generation that you pull -------------------------------------------------------------------------- */

/**
 * Validates, tokenizes, checks the room, queues, returns. After DSA_OK there is exactly one DONE, whatever happens.
 *
 * @param session  The session; in use until DONE has been produced.
 * @param prompt   What is new. May not be empty.
 * @param options  NULL: all defaults. `on_ready` is called on a library thread when an event is there: once after this
 *                 call, and once after each DSA_PENDING of dsa_run_next().
 * @param out      Receives the run.
 * @return DSA_OK, or DSA_ERROR_ARGUMENT      the prompt is empty, a token does not exist, an option is impossible;
 *                    DSA_ERROR_CONTEXT_FULL  prompt and max_tokens do not fit; needed and available, in tokens, say
 *                                            by how much. With DSA_OVERFLOW_FINISH only the prompt has to fit;
 *                    DSA_ERROR_QUEUE_FULL    too many runs wait;
 *                    DSA_ERROR_OUT_OF_MEMORY the page pool has no room and no run in work will free any;
 *                    DSA_ERROR_UNSUPPORTED   text without a tokenizer or without a known chat format;
 *                    DSA_ERROR_BUSY, DSA_ERROR_REENTRANT, DSA_ERROR_CLOSED.
 *
 * On failure  The session is as it was before the call; *out is unchanged.
 * Lifetime    Release with dsa_run_release(). The run holds its session. Prompt and options are borrowed for the call,
 *             `on_ready_ud` until the last dsa_run_release() has returned.
 * Threading   One call that changes a session at a time. Other sessions may run meanwhile.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_start(dsa_session *session, const dsa_prompt *prompt,
                                 const dsa_run_options *options, dsa_run **out);

/**
 * The next event. Text that was not read yet is joined; nothing is lost.
 *
 * @param run         The run.
 * @param timeout_ms  How long to wait; 0 polls, DSA_FOREVER waits.
 * @param out         Receives the event.
 * @return DSA_OK, or DSA_PENDING     the time passed without an event;
 *                    DSA_END         DONE was delivered before;
 *                    DSA_ERROR_BUSY  another thread is inside this call.
 *
 * On failure  *out is unchanged, also with DSA_PENDING and DSA_END.
 * Lifetime    out->text lives until the next call of this function on this run.
 * Threading   One thread at a time.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_next(dsa_run *run, int64_t timeout_ms, dsa_event *out);

/**
 * Stops a run after the step in progress: in the queue, during the prompt, during the answer; the first one counts,
 * after the end it does nothing. The events up to DONE are still delivered.
 *
 * @param run  The run.
 * @param how  DSA_STOP_KEEP: prompt and answer so far stay in the session. DSA_STOP_ROLLBACK: exactly as before the run.
 * @return DSA_OK, or a general failure.
 *
 * On failure  The run goes on.
 * Lifetime    -
 * Threading   Any thread, any time, any number of times; also from any callback but log and thread ones.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_cancel(const dsa_run *run, int32_t how);

/**
 * How it ended, and what it used.
 *
 * @param run  The run.
 * @param out  Receives the result.
 * @return DSA_OK, or DSA_PENDING  it has not ended.
 *
 * On failure  *out is unchanged, also with DSA_PENDING.
 * Lifetime    Plain values.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_get_result(const dsa_run *run, dsa_result *out);

/**
 * What ended it, with counts and position.
 *
 * @param run  The run.
 * @param out  Receives the error; code 0 if it did not fail.
 * @return DSA_OK, or DSA_PENDING  it has not ended.
 *
 * On failure  *out is unchanged, also with DSA_PENDING.
 * Lifetime    The message lives as long as the run.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_get_error(const dsa_run *run, dsa_error *out);

/**
 * The whole text of a channel: the concatenation of its TEXT events.
 *
 * @param run      The run.
 * @param channel  DSA_CHANNEL_*.
 * @param out      Receives the text.
 * @return DSA_OK, or DSA_PENDING  it has not ended.
 *
 * On failure  *out is unchanged, also with DSA_PENDING.
 * Lifetime    The view lives as long as the run.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_get_text(const dsa_run *run, int32_t channel, dsa_str *out);

/**
 * A call of a tool that the answer made; the finish reason is DSA_FINISH_TOOL if the model ended with one.
 *
 * @param run    The run.
 * @param index  0 to tool_calls - 1 of dsa_result.
 * @param out    Receives the call.
 * @return DSA_OK, or DSA_PENDING         it has not ended;
 *                    DSA_ERROR_ARGUMENT  there is no such call.
 *
 * On failure  *out is unchanged, also with DSA_PENDING.
 * Lifetime    The views live as long as the run.
 * Threading   Any thread.
 * Since       level 3
 */
DSA_API dsa_status dsa_run_get_tool_call(const dsa_run *run, uint32_t index, dsa_tool_call *out);

/**
 * Where the time went. decode_ms runs from the first token to the last; compute_ms and sample_ms are this run's steps in
 * it. Copies, disk and the reader cost a run nothing in this version, so those are 0.
 *
 * @param run  The run.
 * @param out  Receives the numbers.
 * @return DSA_OK, or DSA_PENDING  it has not ended.
 *
 * On failure  *out is unchanged, also with DSA_PENDING.
 * Lifetime    Plain values.
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API dsa_status dsa_run_get_stats(const dsa_run *run, dsa_run_stats *out);

/**
 * One owner more, for a second thread that cancels or watches.
 *
 * @param run  NULL does nothing.
 *
 * Lifetime    Balance it with dsa_run_release().
 * Threading   Any thread.
 * Since       level 1
 */
DSA_API void dsa_run_retain(const dsa_run *run);

/**
 * One owner fewer. The last one cancels with DSA_STOP_KEEP if unfinished; the session stays busy until the step ends.
 *
 * @param run  NULL does nothing.
 *
 * Lifetime    The handle is not yours any more; after the last one `on_ready` is never called again.
 * Threading   Any thread. Does not wait for work; only a call of `on_ready` that is being made on another thread is let
 *             return first.
 * Since       level 1
 */
DSA_API void dsa_run_release(const dsa_run *run);

#ifdef __cplusplus
}
#endif

#endif /* DSA_SDK_H */
