# What `cmake --install` lays down: a tree that may be moved, for CMake (dsa::sdk) and for pkg-config.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dsa_sdk)
file(RELATIVE_PATH DSA_PREFIX_FROM_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/dsa_sdk.pc.in dsa_sdk.pc @ONLY)
configure_package_config_file(cmake/dsa_sdkConfig.cmake.in dsa_sdkConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(dsa_sdkConfigVersion.cmake COMPATIBILITY SameMajorVersion)

# A library that was copied beside this one is found before that of the system.
set_target_properties(dsa_sdk PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS dsa_sdk EXPORT dsa_sdk RUNTIME_DEPENDENCY_SET dsa_dependencies FILE_SET HEADERS)
install(EXPORT dsa_sdk FILE dsa_sdkTargets.cmake NAMESPACE dsa:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/dsa_sdkConfig.cmake ${PROJECT_BINARY_DIR}/dsa_sdkConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/dsa_sdk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
# Beside the library, which looks for it there. It needs cuBLASLt of CUDA 13, but no driver to be loaded.
if(DSA_CUDA)
  install(TARGETS dsa_sdk_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(DSA_TOOLS)
  install(TARGETS dsa_inspect dsa_convert RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(DSA_STATIC)
  install(FILES $<TARGET_FILE:dsa_core> DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libdsa_sdk.a)
endif()

# `cmake --install BUILD --component bundle`: the libraries that a system may lack, for packages that stand alone.
install(RUNTIME_DEPENDENCY_SET dsa_dependencies
        PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+|z)\\.so"
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT bundle EXCLUDE_FROM_ALL)

# The licence of everything that is linked or compiled in: dsa_licence(NAME PACKAGE), as the system keeps them.
set(licence_dir ${CMAKE_INSTALL_DATADIR}/licenses/dsa_sdk)
function(dsa_licence name package)
  find_file(DSA_LICENCE_${name} NAMES copyright LICENSE COPYING
            PATHS /usr/share/doc/${package} /usr/share/licenses/${package} /usr/share/licenses/${name} NO_DEFAULT_PATH)
  mark_as_advanced(DSA_LICENCE_${name})
  if(DSA_LICENCE_${name})
    install(FILES ${DSA_LICENCE_${name}} DESTINATION ${licence_dir} RENAME ${name}.txt)
  else()
    message(NOTICE "The licence of ${name} was not found; the installed tree will lack it.")
  endif()
endfunction()
install(FILES LICENSE DESTINATION ${licence_dir} RENAME dsa_sdk.txt)
dsa_licence(highway libhwy-dev)
dsa_licence(nlohmann-json nlohmann-json3-dev)
dsa_licence(pcre2 libpcre2-dev)
dsa_licence(sentencepiece libsentencepiece-dev)
dsa_licence(stb libstb-dev)
dsa_licence(webp libwebp-dev)
dsa_licence(xxhash libxxhash-dev)
dsa_licence(libstdc++ libstdc++6)
