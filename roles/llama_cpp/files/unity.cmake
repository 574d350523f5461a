# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Included by cmake after project(). tools/mtmd has some fifty small files that spend their time on the same headers;
# compiled sixteen at a time, as llama.cpp itself does it in src/, they take a tenth of the time.

if(CMAKE_VERSION VERSION_LESS 3.19)
    return()
endif()

function(relay_pool_unity)
    if(NOT TARGET mtmd)
        return()
    endif()
    # The public files of the library refuse to see its private headers, so they stay alone.
    get_target_property(sources mtmd SOURCES)
    get_target_property(folder mtmd SOURCE_DIR)
    list(FILTER sources EXCLUDE REGEX "models/")
    list(TRANSFORM sources PREPEND "${folder}/")
    set_source_files_properties(${sources} TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_target_properties(mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
endfunction()

cmake_language(DEFER CALL relay_pool_unity)
