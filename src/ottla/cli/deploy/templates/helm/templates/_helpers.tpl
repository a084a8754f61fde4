{{/* Names: all begin with the name of the release. */}}
{{- define "ottla.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "ottla.labels" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{/* The selector of a part's pods. Called with a dictionary of root and part. */}}
{{- define "ottla.selector" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "ottla.image" -}}
{{- printf "%s:%s" .Values.image.repository .Values.image.tag | quote -}}
{{- end -}}

{{/* The bootstrap servers for services inside. */}}
{{- define "ottla.bootstrap" -}}
{{- printf "%s-brokers:9092" (include "ottla.name" .) -}}
{{- end -}}

{{/* All ZooKeepers, each by its own name. */}}
{{- define "ottla.zookeepers" -}}
{{- $name := include "ottla.name" . -}}
{{- $servers := list -}}
{{- range $index := until (int .Values.zookeeper.replicas) -}}
{{- $servers = append $servers (printf "%s-zookeeper-%d.%s-zookeeper.%s.svc:2181" $name $index $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $servers -}}
{{- end -}}

{{/* Only the program's own user and its own folders. */}}
{{- define "ottla.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end -}}

{{- define "ottla.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
# Do not traverse a large volume at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* A value as text: Helm reads every number as a float and would write 1.073741824e+09. */}}
{{- define "ottla.plain" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}
