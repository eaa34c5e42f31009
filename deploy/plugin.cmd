@echo off
rem kubectl denolith @VERSION@: starts the plugin by Deno, both beside this file.
setlocal
@ENV@
"%~dp0deno.exe" @FLAGS@ -P=@SET@ --config "%~dp0deno.json" "%~dp0@MODULE@" %*
