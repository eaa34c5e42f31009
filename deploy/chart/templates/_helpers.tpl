{{- /* Labels of every object. */ -}}
{{- define "denolith.labels" -}}
app.kubernetes.io/name: denolith
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Annotations of the definitions: the version of their schemas, which is SCHEMA_VERSION of k8s/client/definitions.ts. */ -}}
{{- define "denolith.definitionAnnotations" -}}
lvm.denolith.dev/schema-version: "1"
helm.sh/resource-policy: keep
{{- end }}

{{- /* The rule of a role by which a process reads them. */ -}}
{{- define "denolith.definitionRule" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    - lvmimports.lvm.denolith.dev
    - lvmmoves.lvm.denolith.dev
    - lvmnodes.lvm.denolith.dev
    - lvmsnapshots.lvm.denolith.dev
    - lvmvolumes.lvm.denolith.dev
  verbs: [get]
{{- end }}

{{- /* Name of the image, with its registry, tag and digest. */ -}}
{{- define "denolith.image" -}}
{{- with .Values.global.imageRegistry }}{{ . }}/{{ end }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}
