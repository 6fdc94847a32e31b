# Writes OUT, a C file with one hash of everything that decides what code is generated: the sources
# of the layers FOLDERS below SOURCE.  Run as a script.  The hash is part of every kernel's key, so
# that no build finds what another one's sources made, and builds of equal sources share.

cmake_minimum_required(VERSION 3.22)
set(text "")
foreach(folder ${FOLDERS})
    file(GLOB files RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.[ch] ${SOURCE}/${folder}/*.def)
    foreach(file ${files})
        file(SHA256 ${SOURCE}/${file} hash)
        string(APPEND text "${file} ${hash}\n")
    endforeach()
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING ${hash} 0 16 hash)
file(CONFIGURE OUTPUT ${OUT} CONTENT "const char eider_code_digest[] = \"@hash@\";\n" @ONLY)
