/* A shared library needs a source of its own; everything else comes from dsa_core. */
typedef int dsa_sdk_empty;
